"""Options of the CPU planner, for tests and for measurements of one choice against another."""

from __future__ import annotations

from dataclasses import dataclass

from bslite.explore.cpu import Loops


@dataclass(frozen=True)
class Tuning:
    """``loops``: the loop parameters of recurrent layers, in place of the search's pick."""

    loops: Loops | None = None
