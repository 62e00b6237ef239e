"""Warnings of a wrapped module, each once."""

import sys
import warnings


class Voice:
    """Warns where the code stands that called the module. ``fallback`` as for `bslite.optimize`."""

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
