"""Where compiled kernels are kept between processes, and when they are stale.

Numba's own file cache stamps a function with its own file only, so a change in a callee's file goes
unnoticed, and it raises in read-only homes. Here the stamp is a digest of every kernel source; where no
directory can be written, kernels are compiled anew in each process and one warning says so.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import warnings
from pathlib import Path

from numba.core.caching import Cache, CompileResultCacheImpl, NullCache, _CacheLocator


def cache_dir() -> Path:
    """``$BSLITE_CACHE_DIR``, or ``bslite`` under the user's cache directory."""
    if chosen := os.environ.get("BSLITE_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bslite"


@functools.cache
def fingerprint() -> str:
    """Digest of all kernel sources, so that editing any of them recompiles all of them."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _writable(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
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
        return str(cache_dir())

    def get_source_stamp(self):
        return fingerprint()

    def get_disambiguator(self):
        return fingerprint()

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
    return KernelCache(py_func) if _writable(cache_dir()) else NullCache()
