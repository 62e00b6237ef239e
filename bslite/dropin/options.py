"""How `optimize` was called."""

from dataclasses import dataclass, field

from bslite.arithmetic import Precision, current, precision_of


@dataclass(frozen=True)
class Options:
    """How `optimize` was called."""

    fallback: str = "warn"
    tune: bool = True
    threads: int | None = None
    training: bool | None = None  # None: steps in training mode
    bucket_mb: float | None = None
    memory: int | None = None
    precision: Precision = field(default_factory=current)

    def __post_init__(self) -> None:
        """EngineError for an unknown precision, which may be given by its name."""
        object.__setattr__(self, "precision", precision_of(self.precision))
