"""The predicted time of a launch: the price that chose it, if any, else one from the bytes it moves."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from bslite.explore.gpu import GpuMachine
from bslite.ops import Shape
from bslite.plan.core.plan import Access
from bslite.plan.cuda.launch import CudaPlan, Launch

FLOAT = 4  # bytes


class Price(NamedTuple):
    """``bytes`` that a launch reads and writes, its ``seconds``, and their dominant limit: "compute",
    "memory", "L2", the "latency" of steps that wait for each other, or the "launch".
    """

    bytes: int
    seconds: float
    bound: str


def footprint(plan: CudaPlan, params: Mapping[str, Shape]) -> int:
    """Return the bytes that a whole run touches: arena, inputs and outputs, constants."""
    ends = sum(b.size for b in plan.buffers.values() if b.kind in ("input", "output"))
    return FLOAT * (plan.arena_size + ends) + sum(_const_bytes(plan, name, params) for name in plan.consts)


def price_of(
    plan: CudaPlan, step: Launch, machine: GpuMachine, params: Mapping[str, Shape], flops: int, whole: int
) -> Price:
    """Return the price of one launch.

    ``params``: shapes of the model's parameters, by key. ``flops``: operations of the layers that the launch
    computes. ``whole``: the plan's `footprint`, which may stay in L2.
    """
    touched = {*step.reads, *step.writes}
    moved = sum(_bytes(access) for access in touched)
    moved += sum(_const_bytes(plan, name, params) for name in {name for name, _ in step.operands.values()})
    fits = whole <= machine.l2_bytes
    parts = {
        "compute": flops / (2.0 * machine.sms * machine.lanes * machine.clock),
        "L2" if fits else "memory": moved / (machine.l2_bandwidth if fits else machine.memory_bandwidth),
        "latency": _turns(step) * (2 * machine.l2_latency + machine.step_cycles / machine.clock),
        "launch": machine.launch,
    }
    throughput = max(parts["compute"], parts["L2" if fits else "memory"])
    own = step.seconds
    if own is None:
        own = throughput + parts["latency"] + machine.launch
    parts["latency"] = own - throughput - machine.launch  # the rest of its own price
    return Price(moved, own, max(parts, key=lambda name: parts[name]))


def _turns(step: Launch) -> int:
    """Return how many steps of a recurrent layer run in the launch; each waits for the one before."""
    numbers = step.record.numbers()
    return int(numbers["stop"] - numbers["first"]) if {"first", "stop"} <= set(numbers) else 0


def _bytes(access: Access) -> int:
    return FLOAT * (access.hi - access.lo) * (access.last - access.first) // access.period


def _const_bytes(plan: CudaPlan, name: str, params: Mapping[str, Shape]) -> int:
    """Return a constant's bytes, as many as the parameters it is made from; 0 for a buffer."""
    const = plan.consts.get(name)
    if const is None:
        return 0
    if const.keys:
        return FLOAT * sum(math.prod(params[key]) for key in const.keys)
    return FLOAT * len(dict(const.args).get("values", ()))
