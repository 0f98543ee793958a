"""Input from outside is bounded in bytes and in time: files, and the output of programs."""

import gzip
import resource
import sys
import time
import zlib
from pathlib import Path

import pytest

from pytest_flamegate.config import workload as config_workload
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ReceiptError, ToolError, UsageError
from pytest_flamegate.profile import formats
from pytest_flamegate.profile.formats import unpack

MIB = 1 << 20


def test_a_gzip_bomb_is_rejected_early() -> None:
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    head = packer.flush(zlib.Z_FULL_FLUSH)
    data = head + (packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)) * 1024
    assert len(data) < 1.1e6
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with pytest.raises(ReceiptError, match="E_TOO_LARGE"):
        unpack(data)
    assert time.process_time() - began < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib < 100 * 1024
    began = time.process_time()
    assert unpack(gzip.compress(b"") * 20_000) == b""
    assert time.process_time() - began < 5.0


def test_packed_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_TRUSTED_BYTES", 1 * MIB)
    lines = b"".join(b"main;step_%d;kernel_%d %d\n" % (i, i % 97, i) for i in range(60_000))
    assert len(lines) > formats._TRUSTED_BYTES
    assert unpack(gzip.compress(lines)) == lines
    assert unpack(gzip.compress(lines[:9]) + gzip.compress(lines[9:])) == lines


def test_a_workload_file_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "flamegate.toml"
    path.write_bytes(b"#" * config_workload.MAX_FILE_BYTES)
    assert len(config_workload.read_toml_bytes(path)) == config_workload.MAX_FILE_BYTES
    path.write_bytes(b"#" * (config_workload.MAX_FILE_BYTES + 1))
    with pytest.raises(UsageError, match="E_BAD_TOML"):
        config_workload.read_toml_bytes(path)


@pytest.mark.parametrize("stream", [1, 2])
def test_a_command_that_floods_is_ended(stream: int) -> None:
    flood = f"import os\nwhile True: os.write({stream}, bytes(1 << 20))\n"
    began = time.monotonic()
    with pytest.raises(ToolError, match="E_OUTPUT_FLOOD"):
        process.run([sys.executable, "-c", flood], timeout_s=300)
    assert time.monotonic() - began < 60
