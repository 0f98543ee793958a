"""Find the process that listens at an address of this machine, by its sockets."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import psutil

_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})


def find_listeners(port: int, among: set[int] | None = None) -> set[int]:
    """Return the processes that listen at a TCP port, only those in ``among`` if it is given.

    Processes of other users may be missing.
    """
    found = set()
    if among is not None:
        for pid in among:
            with suppress(psutil.Error, OSError):
                if any(_listens(each, port) for each in psutil.Process(pid).net_connections("tcp")):
                    found.add(pid)
        return found
    with suppress(psutil.Error, OSError, RuntimeError):
        for each in psutil.net_connections("tcp"):
            if each.pid is not None and _listens(each, port):
                found.add(each.pid)
    return found


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine's own loopback."""
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def find_server(host: str, port: int) -> int | None:
    """Return the process that answers there, the oldest of those that share the socket.

    None if it is on another machine, or if this user may not see it.
    """
    if not is_loopback(host):
        return None
    found = find_listeners(port)
    return min(found, key=_start_time_s) if found else None


def find_server_program(url: str) -> str:
    """Return the name of the program that answers at ``url``; empty if it is unknown."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        pid = find_server(parts.hostname or "", port)
    except ValueError:
        return ""
    if pid is None:
        return ""
    try:
        return Path(psutil.Process(pid).exe()).name
    except (psutil.Error, OSError):
        return ""


def _listens(connection: object, port: int) -> bool:
    status, address = getattr(connection, "status", ""), getattr(connection, "laddr", None)
    return status == psutil.CONN_LISTEN and bool(address) and address.port == port  # type: ignore[union-attr]


def _start_time_s(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return float("inf")
