"""The record of a step that runs plans of its own, depth-first."""

from bslite.kernels.contracts.record import StepRecord


class Stacked(StepRecord, kernel="stack"):
    """A stack: each item takes one band of one image through a program of its own.

    The engine, not the planner, writes ``table`` (the address of the bands' table) and ``bands`` (its
    length).
    """

    table: int = 0
    bands: int = 0
