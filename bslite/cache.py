"""The folder in which bslite keeps files between processes: compiled kernels, measurements of machines."""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

KEEP_DAYS = 30  # a version's folder that no process has used for so long is removed


def cache_dir() -> Path:
    """``$BSLITE_CACHE_DIR``, or ``bslite`` under the user's cache directory."""
    if chosen := os.environ.get("BSLITE_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bslite"


@functools.cache
def writable(folder: Path) -> bool:
    """Whether files can be kept in ``folder``, which is made if missing; if not, one warning says so."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as e:
        return _not_writable(folder, e)
    return True


def _not_writable(folder: Path, error: OSError) -> bool:
    warnings.warn(
        f"bslite cannot keep compiled kernels in {folder} ({error.strerror}); it will compile them again "
        "in each process. Set BSLITE_CACHE_DIR to a directory that can be written.",
        RuntimeWarning,
        stacklevel=3,
    )
    return False


@functools.cache
def version_folder(parent: Path, digest: str) -> Path | None:
    """The folder ``parent / digest``, made if it is missing; None where nothing can be written.

    Making it removes the folders of other digests that no process has used for `KEEP_DAYS`; the first use in
    each process counts, so what a process reads often enough stays.
    """
    if not writable(parent):
        return None
    folder = parent / digest
    try:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            _drop_old(parent)
    except OSError as e:
        _not_writable(folder, e)
        return None
    with suppress(OSError):  # the folder of another user, who lets this one write to it
        os.utime(folder)
    return folder


def _drop_old(parent: Path) -> None:
    for folder in parent.iterdir():
        if not re.fullmatch("[0-9a-f]{16}", folder.name):
            continue  # not a digest: not ours
        with suppress(OSError):  # another process has removed it meanwhile
            if folder.is_dir() and time.time() - folder.stat().st_mtime > KEEP_DAYS * 86400:
                shutil.rmtree(folder, ignore_errors=True)


def write(file: Path, data: bytes | str) -> None:
    """Replace ``file``, whose folder is made if it is missing, all at once: another process reads what was
    there before or all of ``data``. OSError where it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_bytes(data.encode() if isinstance(data, str) else data)
    partial.replace(file)
