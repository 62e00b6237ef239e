"""One line of an explanation."""

from dataclasses import dataclass

from bslite.ops import Shape


@dataclass(frozen=True)
class Row:
    """One layer as executed, or one stack of them. Times are in seconds, traffic in bytes.

    ``seconds`` is its part of the run: the time that threads spent on its items (``busy``) or waiting for
    their end (``wait``), divided by the number of threads, so that the rows add up to the run. A layer
    ``inside`` a stack has its part of the time of the stack. ``bytes`` and ``weights`` are compulsory
    traffic: values in and out, and parameters, once each. ``floor`` is the least time that this traffic and
    ``flops`` take, ``bound`` the limit that sets it.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    shape: Shape
    kernels: tuple[str, ...]
    steps: tuple[int, ...]
    main: int | None  # of ``steps``, the one that computes
    items: int
    tile: str
    flops: int
    bytes: int
    weights: int
    floor: float
    bound: str
    seconds: float
    busy: float
    wait: float
    span: float
    share: float
    holds: tuple[str, ...]
    apart: str
    stack: int | None = None  # counted from 1
    inside: bool = False
    predicted: float | None = None

    @property
    def gflops(self) -> float:
        """GFLOP/s over its part of the run; 0 where it computes nothing."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """GB/s of compulsory traffic over its part of the run."""
        return (self.bytes + self.weights) / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def roofline(self) -> float:
        """Floor over time: 1 is as fast as the machine can."""
        return self.floor / self.seconds if self.seconds else 0.0
