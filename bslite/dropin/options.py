"""How `optimize` was called."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How `optimize` was called."""

    fallback: str = "warn"
    tune: bool = True
    threads: int | None = None
    training: bool | None = None  # None: steps in training mode
    bucket_mb: float | None = None
    memory: int | None = None
