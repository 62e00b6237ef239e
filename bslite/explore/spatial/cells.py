"""What is done with the sums of the gates, element by element, as a pipeline of PCUs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bslite.explore.spatial.machine import SpatialMachine

Array = NDArray[np.float32]
ONE = np.float32(1)


def _sigmoid(x: Array) -> Array:
    y: Array = ONE / (ONE + np.exp(-x))  # where exp overflows, 0 is right
    return y


@dataclass(frozen=True)
class Op:
    """``out = function(*args)`` on one vector; ``special``: exp and the like, which take more stages."""

    out: str
    name: str
    args: tuple[str, ...]

    @property
    def special(self) -> bool:
        """Whether it goes through ``function_stages`` stages instead of one."""
        return self.name in ("sigmoid", "tanh")

    def __call__(self, values: dict[str, Any]) -> None:
        values[self.out] = FUNCTIONS[self.name](*(values[arg] for arg in self.args))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "mul": np.multiply,
    "add": np.add,
    "complement": lambda x: ONE - x,
}

# Sums that the dot products hand over, in the order of the rows of torch's weights. The GRU's new gate hands
# over two: : the reset gate is applied to what comes from h alone.
SUMS = {"lstm": ("si", "sf", "sg", "so"), "gru": ("sr", "sz", "snx", "snh"), "rnn": ("s",)}
#: The gates whose sums over inputs and over h are kept apart.
APART = {"lstm": (), "gru": (2,), "rnn": ()}

#: torch's equations; h and c are the state before.
PROGRAMS = {
    "lstm": (
        Op("i", "sigmoid", ("si",)),
        Op("f", "sigmoid", ("sf",)),
        Op("g", "tanh", ("sg",)),
        Op("o", "sigmoid", ("so",)),
        Op("fc", "mul", ("f", "c")),
        Op("ig", "mul", ("i", "g")),
        Op("c", "add", ("fc", "ig")),
        Op("tc", "tanh", ("c",)),
        Op("h", "mul", ("o", "tc")),
    ),
    "gru": (
        Op("r", "sigmoid", ("sr",)),
        Op("z", "sigmoid", ("sz",)),
        Op("rn", "mul", ("r", "snh")),
        Op("sn", "add", ("snx", "rn")),
        Op("n", "tanh", ("sn",)),
        Op("nz", "complement", ("z",)),
        Op("new", "mul", ("nz", "n")),
        Op("old", "mul", ("z", "h")),
        Op("h", "add", ("new", "old")),
    ),
    "rnn": (Op("h", "tanh", ("s",)),),
}


@dataclass(frozen=True)
class Pipeline:
    """A program laid along PCUs: when each op is done, in cycles after the first."""

    done: tuple[tuple[int, Op], ...]
    pcus: int

    @property
    def latency(self) -> int:
        """Cycles from the first stage to the last result."""
        return max(cycle for cycle, _ in self.done)


@lru_cache(maxsize=256)
def pipeline(ops: tuple[Op, ...], machine: SpatialMachine) -> Pipeline:
    """The ops in their order, each in the first PCU with stages left at or behind its arguments' PCUs.

    A PCU is a line: an op starts a cycle or more behind the one before it in the same PCU, and a value takes
    a hop to another PCU.
    """
    free: list[int] = []  # stages left in each PCU
    next_start: list[int] = []  # of each PCU, the first cycle at which a further op may start
    ready: dict[str, tuple[int, int]] = {}  # value: PCU, cycle
    done = []
    for op in ops:
        need = machine.function_stages if op.special else 1
        made = [ready[arg] for arg in op.args if arg in ready]
        behind = max((pcu for pcu, _ in made), default=0)
        fresh = not made and op.special  # functions of the inputs run side by side
        where = next((p for p in range(behind, len(free)) if free[p] >= need and not fresh), len(free))
        if where == len(free):
            for _ in range(-(-need // machine.stages)):
                free.append(machine.stages)
                next_start.append(0)
        start = max(
            [next_start[where]] + [cycle + (machine.hop_cycles if pcu != where else 0) for pcu, cycle in made]
        )
        last = where + (need - 1) // machine.stages
        hops = (last - where) * machine.hop_cycles  # a function may span PCUs
        finish = start + need + hops
        for pcu in range(where, last + 1):
            taken = min(need, free[pcu])
            need -= taken
            free[pcu] -= taken
        next_start[last] = finish
        ready[op.out] = (last, finish)
        done.append((finish, op))
    return Pipeline(tuple(done), len(free))
