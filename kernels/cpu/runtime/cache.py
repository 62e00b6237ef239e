"""Machine code of CPU kernels, kept on disk between processes.

Numba's own file cache stamps a function with its own file only, so a change in a callee's file goes
unnoticed, and it raises in read-only homes. Here each kernel lies in a folder named by the digest of the
sources it is compiled from (`bslite.kernels.sources`); where no directory can be written, each process
compiles its kernels anew and one warning says so.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import Cache, CompileResultCacheImpl, NullCache, _CacheLocator

from bslite.cache import cache_dir, version_folder
from bslite.kernels import sources
from bslite.kernels.cpu.vector.target import has_tiles


def kernels_dir() -> Path:
    """The folder that holds a folder for each digest."""
    return cache_dir() / "kernels"


def of_these_sources() -> set[str]:
    """The names of the folders for kernels of the sources that this process has read."""
    return {sources.digest([name]) for name in sources.modules() if name.startswith("bslite.kernels.cpu.")}


class _Locator(_CacheLocator):
    def __init__(self, py_func, py_file):
        self._digest = sources.digest_of(py_func)

    def get_cache_path(self):
        return str(kernels_dir() / self._digest)

    def get_source_stamp(self):
        return self._digest

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
        target = codegen.magic_tuple()
        return sig, (*target, "tiles") if has_tiles() else target  # the system may permit them or not


class ReadCache(KernelCache):
    """What is there is read; what has to be compiled is not kept, and a warning says so."""

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except OSError:  # another user's files
            return None

    def save_overload(self, sig, data):
        version_folder(kernels_dir(), sources.digest_of(self._py_func))


def cache_for(py_func: Callable[..., Any]) -> Cache | NullCache:
    """The cache for a kernel.

    It stores nothing where no directory can be written, or where the source of ``py_func`` is not known. What
    lies in a directory that can only be read, as in an image, is read.
    """
    try:
        digest = sources.digest_of(py_func)
    except LookupError:
        return NullCache()
    folder = kernels_dir() / digest
    if folder.is_dir() and os.access(folder, os.R_OK | os.X_OK) and not os.access(folder, os.W_OK):
        return ReadCache(py_func)
    return NullCache() if version_folder(kernels_dir(), digest) is None else KernelCache(py_func)
