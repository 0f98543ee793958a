"""Which process listens at an address: found by its sockets, on this machine alone."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import psutil

_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})


def find_listeners(port: int, among: set[int] | None = None) -> set[int]:
    """Return the processes that listen at a TCP port; of ``among`` alone, where it is given.

    What belongs to another user may not be told.
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
    """Return the process that answers there; the eldest of those that share the socket.

    None where it is on another machine, or where this user may not see it.
    """
    if not is_loopback(host):
        return None
    found = find_listeners(port)
    return min(found, key=_began_s) if found else None


def find_server_program(url: str) -> str:
    """Return the name of the program that answers at ``url``; empty where nobody can tell."""
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


def _began_s(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return float("inf")
