"""torch's settings while it computes for the engine: full float32, and the same bits every time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_lock = threading.Lock()
_within = 0  # threads that compute so now
_restore: list[Callable[[], object]] = []


@contextmanager
def strict(torch: Any) -> Iterator[None]:
    """While this is open, torch's CUDA libraries compute in full float32 by deterministic algorithms.

    The caller's settings, autocast included, do not count meanwhile and are restored at the end.

    torch keeps the settings for the whole process: of several threads the first sets them, the last restores
    them. Inference mode is part of it, because a tensor made in it may not be written to outside of it.
    """
    global _within
    with _lock:
        if not _within:
            _restore[:] = _set(torch)
        _within += 1
    try:
        with torch.inference_mode(), torch.autocast("cuda", enabled=False):
            yield
    finally:
        with _lock:
            _within -= 1
            if not _within:
                for restore in reversed(_restore):
                    restore()


def _set(torch: Any) -> list[Callable[[], object]]:
    """Set everything; returns the functions that restore it, to be called in reverse order."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    undo: list[Callable[[], object]] = []

    def change(where: Any, name: str, value: Any, before: Any) -> None:
        undo.append(lambda: setattr(where, name, before))
        setattr(where, name, value)

    # From torch 2.9 on each operation has a precision of its own, and the old switches, which set these too,
    # cannot be read once the two say different things. Both are set: the libraries look at either.
    places = [(matmul, cudnn), (getattr(cudnn, "conv", None), cudnn), (getattr(cudnn, "rnn", None), cudnn)]
    new = [(at, above) for at, above in places if hasattr(at, "fp32_precision")]
    for at, above in new:
        found = at.fp32_precision
        before = "none" if found == above.fp32_precision else found  # as of all operations
        undo.append(lambda at=at, before=before: setattr(at, "fp32_precision", before))  # type: ignore[misc]
    precision, tf32 = "highest", True  # torch's defaults, which a user of the new ones alone leaves
    with suppress(RuntimeError):
        precision = torch.get_float32_matmul_precision()
    with suppress(RuntimeError):
        tf32 = cudnn.allow_tf32
    undo.append(lambda: torch.set_float32_matmul_precision(precision))
    torch.set_float32_matmul_precision("highest")
    change(cudnn, "allow_tf32", False, tf32)
    for at, _ in new:
        at.fp32_precision = "ieee"
    for name, value in (("enabled", True), ("benchmark", False), ("deterministic", True)):
        change(cudnn, name, value, getattr(cudnn, name))
    return undo
