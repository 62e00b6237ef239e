"""Where compiled kernels are kept between processes, and when they are stale.

Numba's own file cache stamps a function with its own file only, so a change in a callee's file goes
unnoticed, and it raises in read-only homes. Here the stamp is a digest of every kernel source; where no
directory can be written, kernels are compiled anew in each process and one warning says so.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import tempfile
import time
import warnings
from pathlib import Path

from numba.core.caching import Cache, CompileResultCacheImpl, NullCache, _CacheLocator

KEEP_DAYS = 30  # kernels of another version of bslite are kept this long


def cache_dir() -> Path:
    """``$BSLITE_CACHE_DIR``, or ``bslite`` under the user's cache directory."""
    if chosen := os.environ.get("BSLITE_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bslite"


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


#: Taken when this process reads the sources, not when it first compiles: they may be edited in between.
_FINGERPRINT = _digest()


def fingerprint() -> str:
    """Digest of all kernel sources, so that editing any of them recompiles all of them."""
    return _FINGERPRINT


def kernel_dir() -> Path:
    """Where the kernels of exactly these sources are."""
    return cache_dir() / "kernels" / fingerprint()


def _drop_old(path: Path) -> None:
    """Remove the kernels of other versions that no process has added to for `KEEP_DAYS`."""
    for other in path.parent.iterdir():
        if not re.fullmatch("[0-9a-f]{16}", other.name):
            continue  # not a fingerprint: not ours
        if other != path and other.is_dir() and time.time() - other.stat().st_mtime > KEEP_DAYS * 86400:
            shutil.rmtree(other, ignore_errors=True)


@functools.cache
def writable(path: Path) -> bool:
    """Whether files can be kept there; if not, one warning says so."""
    try:
        if not path.is_dir():
            path.mkdir(parents=True)
            _drop_old(path)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as e:
        warnings.warn(
            f"bslite cannot keep compiled kernels in {path} ({e.strerror}); it will compile them again "
            "in each process. Set BSLITE_CACHE_DIR to a directory that can be written.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


class _Locator(_CacheLocator):
    def __init__(self, py_func, py_file):
        self._py_file = py_file

    def get_cache_path(self):
        return str(kernel_dir())

    def get_source_stamp(self):
        return fingerprint()

    def get_disambiguator(self):
        return ""

    @classmethod
    def from_function(cls, py_func, py_file):
        return cls(py_func, py_file)


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]


class KernelCache(Cache):
    """Numba's cache driver with the locator above; a kernel's qualified name tells its variants apart."""

    _impl_class = _Impl

    def _index_key(self, sig, codegen):
        return sig, codegen.magic_tuple(), fingerprint()


def cache_for(py_func):
    """The cache a kernel should use; one that stores nothing where no directory can be written."""
    return KernelCache(py_func) if writable(kernel_dir()) else NullCache()
