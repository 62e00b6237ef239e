"""Options of the CPU planner, for tests and for measurements of one choice against another."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bslite.arithmetic import Precision
from bslite.explore.cpu import Loops
from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.plan.cpu.known_runs import KnownRuns

MANY = 1 << 20  # bytes of float32 weights that caches may not keep from one call to the next


@dataclass(frozen=True)
class Banding:
    """Settings of the search for runs of layers that go through an image band by band."""

    longest: int = 14  # layers of a run at most
    rounds: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)  # bands per thread that are tried
    sync: float = 5000.0  # cycles at the end of a step, when threads wait for the last item
    worth: int = 1 << 18  # bytes of a layer per thread from which on its memory traffic matters


@dataclass(frozen=True)
class Fetching:
    """How weights reach tiles of bfloat16."""

    ahead: bool = True  # they are fetched before they are read
    near: int = 16 << 10  # bytes that stay in L1 while all outputs pass, of one product


@dataclass(frozen=True)
class Tuning:
    """``loops``: loop parameters of recurrent layers, in place of the search's pick. ``by_filter``: depthwise
    filters of usual widths have microkernels of their own. ``chains``: elementwise layers go tile by tile.
    ``packed``: parameter -> registers of its panels, of those that are packed already: they are used again
    where others would be no better. ``runs``: those found for other sizes of the model. ``precision``: the
    least accuracy of products. ``fetching``: how weights reach tiles of bfloat16. ``inexact``: parameters
    that have no exact parts of bfloat16. ``narrow``: those whose numbers all fit 16 bits, and which, if
    ``narrowing``. ``as_bytes``: places of inputs that come as the bytes they are, side by side.
    """

    loops: Loops | None = None
    by_filter: bool = True
    chains: bool = True
    precision: Precision = Precision.FLOAT32
    banding: Banding = field(default_factory=Banding)
    fetching: Fetching = field(default_factory=Fetching)
    packed: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    narrowing: bool = True
    as_bytes: frozenset[int] = frozenset()
    narrow: Mapping[str, Narrow] = field(default_factory=dict, compare=False, repr=False)
    inexact: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    runs: KnownRuns | None = field(default=None, compare=False, repr=False)

    def in_memory(self, key: str, weights: int) -> Narrow:
        """How the ``weights`` of a parameter lie in memory for multiply-adds; few stay float32."""
        return self.narrow.get(key, Narrow.NO) if 4 * weights >= MANY else Narrow.NO
