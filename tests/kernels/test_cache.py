"""The store of compiled kernels: old versions go, what is not ours stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bslite.kernels.cpu.runtime import cache


def test_old_versions_are_dropped_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BSLITE_CACHE_DIR", str(tmp_path))
    long_ago = time.time() - (cache.KEEP_DAYS + 1) * 86400
    for name, stamp in {"0" * 16: long_ago, "f" * 16: time.time(), "my-thesis": long_ago}.items():
        (tmp_path / "kernels" / name).mkdir(parents=True)
        os.utime(tmp_path / "kernels" / name, (stamp, stamp))
    assert cache.writable(cache.kernel_dir())
    left = {p.name for p in (tmp_path / "kernels").iterdir()}
    assert left == {"f" * 16, "my-thesis", cache.fingerprint()}


def test_an_edited_kernel_source_changes_the_fingerprint_of_the_next_process_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = cache.fingerprint()
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda p: read(p) + (b"#" if p.name == "conv.py" else b""))
    assert cache._digest() != before
    assert cache.fingerprint() == before  # this process has read the sources as they were
