"""What bslite keeps: files between processes (compiled kernels, measurements), a few objects within one.

The files lie in one folder (`cache_dir`). They are written whole or not at all (`write`), and one that cannot
be read is a warning (`read_json`) or is made anew.
"""

import functools
import json
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from bslite.errors import BsliteError, EngineError

K = TypeVar("K")
V = TypeVar("V")

#: What is kept of one model for other sizes, counted in operations: one with its plan takes some 3 KB.
MAX_OPERATIONS = 128 << 10
APART = 64  # what one kept thing takes besides its operations, counted as such
KEEP_DAYS = 30  # a version's folder that no process has used for so long is removed


def cache_dir() -> Path:
    """``$BSLITE_CACHE_DIR``, or ``bslite`` under the user's cache directory."""
    if chosen := os.environ.get("BSLITE_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bslite"


def machines_dir() -> Path:
    """The folder of what was measured of machines, one file each."""
    return cache_dir() / "machines"


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
    with suppress(OSError):  # the folder belongs to another user and is open to all
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
    """Replace ``file`` in one step: another process reads what was there before, or all of ``data``.

    A missing folder is made. Raises OSError where the file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_bytes(data.encode() if isinstance(data, str) else data)
    partial.replace(file)


def write_json(file: Path, format: int, content: dict[str, Any]) -> None:
    """Replace ``file`` by ``content`` under the number of its format; OSError where it cannot be written."""
    write(file, json.dumps({"format": format, **content}, indent=1) + "\n")


def read_json(
    file: Path, format: int, parse: Callable[[dict[str, Any]], V], what: str, then: str
) -> V | None:
    """What ``parse`` makes of a file that `write_json` wrote; None if there is none.

    A file that cannot be used is a warning, not an error: "bslite ignores ``what`` in ... ; ``then``".
    """
    try:
        data = json.loads(file.read_text())
        if data["format"] != format:
            raise EngineError(f"format {data['format']!r}, expected {format}")
        return parse(data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BsliteError) as e:
        text = f"bslite ignores {what} in {file} ({type(e).__name__}: {e}); {then}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return None


class Derived:
    """Arrays made of others, each made once for all tables that share it: weights packed for an engine, say.

    A table keeps the arrays that it was asked for; one that no table keeps any more is let go. ``like``: a
    table to share arrays with. Arrays are told apart by the memory they lie in, so what they are made of must
    not change. Threads may share a table.
    """

    def __init__(self, like: "Derived | None" = None) -> None:
        self.shared: WeakValueDictionary[Any, _Made] = WeakValueDictionary() if like is None else like.shared
        self._lock: Any = threading.RLock() if like is None else like._lock
        self._kept: dict[Any, _Made] = {}

    def get(self, what: Any, sources: Sequence[Any], make: Callable[[], Any]) -> Any:
        """The array ``what``, a hashable description, of ``sources``; made if there is none."""
        key = (what, *map(place_of, sources))
        with self._lock:
            made = self._kept.get(key) or self.shared.get(key)
            if made is None:
                made = self.shared[key] = _Made(make(), tuple(sources))
            self._kept[key] = made
            return made.array

    def sizes(self) -> dict[Any, int]:
        """Bytes of the arrays that this table keeps, by what tells them apart; not of those made of no more
        than the memory of their sources.
        """
        with self._lock:
            return {key: made.array.nbytes for key, made in self._kept.items() if not made.borrowed}


@dataclass(eq=False)
class _Made:
    """An array with its ``sources``, which are kept so that no other array comes to lie in their memory."""

    array: Any
    sources: tuple[Any, ...]

    @property
    def borrowed(self) -> bool:
        """Whether the array is the memory of a source."""
        return place_of(self.array)[0] in {place_of(source)[0] for source in self.sources}


def place_of(array: Any) -> tuple[Any, ...]:
    """Where an array lies, and how."""
    about = array.__array_interface__
    return about["data"][0], about["typestr"], about["shape"], about["strides"]


class Recent(Generic[K, V]):
    """At most ``size`` values by key: beyond, the least recently used is dropped. Threads may share it.

    ``size_of``: the size of a value, one if not given; the last one is kept whatever its size.
    ``dropped`` is called with each key and value that is dropped so (not with those that `clear` removes).
    """

    def __init__(
        self,
        size: int,
        dropped: Callable[[K, V], None] | None = None,
        size_of: Callable[[V], int] = lambda value: 1,
    ) -> None:
        self.size = size
        self._dropped = dropped
        self._size_of = size_of
        self._held = 0  # the sum of the sizes
        self._values: OrderedDict[K, V] = OrderedDict()
        self._last: tuple[K, V] | None = None  # used most recently: found without a lock, and without a hash
        self._lock = threading.RLock()

    def find(self, key: K) -> V | None:
        """The value of ``key``, which counts as a use of it; None if there is none."""
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            value = self._values[key]
            self._last = key, value
            return value

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made if there is none: by one thread, while the others wait."""
        if (found := self.find(key)) is not None:
            return found
        with self._lock:
            found = self.find(key)  # another thread may have made it meanwhile
            return self.put(key, make()) if found is None else found

    def put(self, key: K, value: V) -> V:
        """Keep ``value``, and return it."""
        with self._lock:
            if key in self._values:
                self._held -= self._size_of(self._values[key])
            self._values[key] = value
            self._held += self._size_of(value)
            self._values.move_to_end(key)
            self._last = key, value
            while self._held > self.size and len(self._values) > 1:
                old = self._values.popitem(last=False)
                self._held -= self._size_of(old[1])
                if self._dropped is not None:
                    self._dropped(*old)
            return value

    def drop_all(self) -> None:
        """Drop everything, and say so of each."""
        with self._lock:
            values = list(self._values.items())
            self.clear()
            if self._dropped is not None:
                for item in values:
                    self._dropped(*item)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._values.clear()
            self._held = 0
            self._last = None

    def values(self) -> list[V]:
        """All values, the least recently used first."""
        with self._lock:
            return list(self._values.values())

    def __len__(self) -> int:
        return len(self._values)


def by_operations(
    operations: Callable[[V], int], dropped: Callable[[Any, V], None] | None = None
) -> Recent[Any, V]:
    """For what is made of one model for other sizes: hundreds of them, but few of one of many operations.

    ``operations``: how many one of them has.
    """
    return Recent(MAX_OPERATIONS, dropped, lambda value: APART + operations(value))
