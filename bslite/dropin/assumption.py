"""A trace that holds for the answers that its forward got when it asked for values, see
`bslite.frontends.torch.tracing.asking`. Each call makes sure that they are the same; if they are not, torch
runs it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bslite.dropin.reasons import ASSUMED, DEPARTS
from bslite.errors import BsliteError

FIRST, MOST = 2, 8  # how often answers may be others, at first and after calls for which they were the same


class Departed(BsliteError):
    """A call gets other answers than the trace holds for. ``often``: so do most."""

    def __init__(self, often: bool) -> None:
        super().__init__(ASSUMED if not often else DEPARTS)
        self.often = often


class Assumption:
    """That calls get the same ``answers``. Given up when too many do not. ``draws``: whether the graph takes
    numbers from torch's generator.
    """

    def __init__(self, answers: Sequence[bool | int], draws: bool) -> None:
        self.answers, self._draws, self._left = tuple(answers), draws, FIRST

    @property
    def given_up(self) -> bool:
        """Whether too many calls got other answers."""
        return self._left < 0

    def departed(self) -> Departed:
        """The error of a call that gets others, which counts it."""
        self._left -= 2
        return Departed(often=False)

    def results(self, made: Sequence[Any]) -> Sequence[Any]:
        """What a graph gives, without the answers at its end. Raises Departed if those are others."""
        results, asked = made[: -len(self.answers)], made[-len(self.answers) :]
        if tuple(x.item() for x in asked) != self.answers:
            raise self.departed()
        self._left = min(self._left + 1, MOST)
        return results

    def checked(self, graph: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[[Sequence[Any]], Any]:
        """``graph``, a function of tensors, with `results`. Raises Departed also if an operation fails; no
        numbers have been drawn then.
        """

        def run(given: Sequence[Any]) -> Any:
            if self.given_up:
                raise Departed(often=True)
            before = torch.get_rng_state() if self._draws else None
            try:
                return self.results(graph(given))
            except Exception as e:  # an operation may refuse what the forward would not have given it
                if before is not None:
                    torch.set_rng_state(before)
                if isinstance(e, BsliteError):
                    raise
                raise self.departed() from e

        return run
