"""Options of the GPU planner, for tests and for measurements of one choice against another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """``recurrent_by_products``: time steps of recurrent layers are products of all sequences, or are not; by
    price where it is None.
    """

    recurrent_by_products: bool | None = None
