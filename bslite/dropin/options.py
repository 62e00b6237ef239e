"""How `optimize` was called, and the warnings that it asked for."""

import sys
import warnings
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
    inner: bool = False  # it is a layer of a module that does not run as a whole

    def __post_init__(self) -> None:
        """EngineError for an unknown precision, which may be given by its name."""
        object.__setattr__(self, "precision", precision_of(self.precision))


class Voice:
    """Warns, each warning once, where the code stands that called the module. ``fallback`` as for
    `bslite.optimize`.
    """

    def __init__(self, fallback: str) -> None:
        self._silent = fallback == "silent"
        self._said: set[str] = set()

    def say(self, text: str, what: str = "") -> None:
        """Warn, once for one ``what``, which is the text where nothing in it varies."""
        if not self._silent and (what or text) not in self._said:
            self._said.add(what or text)
            warnings.warn(text, UserWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """``stacklevel`` of the code that called the module: beyond this package and torch's module calls."""
    own, frame, level = (__name__.rpartition(".")[0], "torch.nn.modules.module"), sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(own):
        frame, level = frame.f_back, level + 1
    return level
