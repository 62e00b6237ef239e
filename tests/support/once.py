"""What several processes of one test run need and one of them makes."""

import contextlib
from collections.abc import Iterator

from bslite import cache

try:
    import fcntl
except ImportError:  # Windows: each process makes its own
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def once(name: str, wait: bool = True) -> Iterator[bool]:
    """One process at a time in the block of this name; the others wait, and find what it has made.

    Without ``wait`` they enter at once, and are told False.
    """
    if fcntl is None:
        yield True
        return
    folder = cache.cache_dir() / "tests" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
