"""A Plan as launches with their arguments, of one workspace: its arena's addresses are in them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bslite.engines.cuda.driver import Bound, Cells, Driver, Memory
from bslite.errors import EngineError
from bslite.plan.cuda.launch import CudaPlan, Launch


@dataclass
class Ready:
    """A compiled kernel and its arguments.

    ``ends`` are the arguments that lie in the caller's arrays: (argument, buffer, first byte).
    """

    bound: Bound
    ends: list[tuple[int, str, int]]

    def start(self, stream: int, callers: Mapping[str, int]) -> None:
        """Start the launch; ``callers`` are the addresses of inputs and outputs."""
        for argument, buffer, first in self.ends:
            self.bound.point(argument, callers[buffer] + first)
        self.bound.start(stream)


def constants_of(value: Any) -> Any:
    """A kernel's compile-time constant: an activation by its name is its code, other names stay."""
    from bslite.kernels.cuda.math.functions import CODES

    if isinstance(value, str):
        return CODES.get(value, value)
    if isinstance(value, (list, tuple)):
        return tuple(map(constants_of, value))
    return value


def launches(
    plan: CudaPlan, driver: Driver, bases: Mapping[str, int], constants: Mapping[str, Memory]
) -> list[Ready]:
    """All steps of the plan. ``bases`` are the addresses of buffers that are ours, not the caller's."""
    return [_launch(plan, step, driver, bases, constants) for step in plan.steps]


def _launch(
    plan: CudaPlan, step: Launch, driver: Driver, bases: Mapping[str, int], constants: Mapping[str, Memory]
) -> Ready:
    from bslite.kernels.cuda import KERNELS
    from bslite.kernels.cuda.runtime.kernel import DTYPES

    kernel = KERNELS[step.kernel]
    numbers = step.record.numbers()
    if set(numbers) != set(kernel.scalars) or set(step.operands) != set(kernel.arrays):
        wrong = sorted((set(numbers) ^ set(kernel.scalars)) | (set(step.operands) ^ set(kernel.arrays)))
        raise EngineError(f"step {step.kernel!r}: {wrong} are given but not known, or known but not given")
    given: dict[str, Any] = dict(numbers)
    ends = []
    for i, (name, kind) in enumerate(kernel.arrays.items()):
        buffer, offset = step.operands[name]
        width = 2 if kind == "f8" else 1
        count = max(1, (_cells(plan, buffer, constants) - offset) // width)
        if buffer in bases or buffer in constants:
            address = (bases[buffer] if buffer in bases else constants[buffer].address) + 4 * offset
        else:
            address = 4 * offset  # beyond an address that the engine's border has made a multiple of 16
            ends.append((i, buffer, 4 * offset))
        if address % (4 * width):
            raise EngineError(
                f"step {step.kernel!r} of {' + '.join(step.layers)}: {name} reads pairs, and begins at "
                f"element {offset} of {buffer}, not on {4 * width} bytes"
            )
        given[name] = Cells(address, DTYPES[kind], count)
    variant = {k: constants_of(v) for k, v in step.variant.constants().items()}
    bound = driver.bind(driver.function(step.kernel, variant), step.grid, step.block, kernel.arguments(given))
    return Ready(bound, ends)


def _cells(plan: CudaPlan, buffer: str, constants: Mapping[str, Memory]) -> int:
    """The number of cells of a buffer or constant."""
    if buffer in constants:
        return constants[buffer].size // 4
    if plan.buffers[buffer].kind == "input":
        return plan.inputs[int(buffer[len("input") :])].extent[1]  # with gaps, if it lies so
    return plan.buffers[buffer].size


def segments(steps: Sequence[Ready], least: int) -> Iterator[tuple[bool, list[Ready]]]:
    """The launches in order, in runs, each with whether a graph may hold it.

    A graph may hold ``least`` or more launches that touch none of the caller's memory, because its addresses
    stay. A launch that touches the caller's memory is a run of its own.
    """
    run: list[Ready] = []
    for launch in [*steps, None]:
        if launch is not None and not launch.ends:
            run.append(launch)
            continue
        if run:
            yield len(run) >= least, run
        run = []
        if launch is not None:
            yield False, [launch]
