"""Options of the GPU planner, for tests and for measurements of one choice against another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Nothing can be set yet."""
