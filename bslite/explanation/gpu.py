"""`explain` for a GPU: what the GPU engine will do with a model. Nothing runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bslite.arithmetic import current
from bslite.errors import EngineError, InputError
from bslite.explanation.data.gpu import GpuRow, gpu_rows
from bslite.explanation.data.memory import bytes_held
from bslite.explanation.views.text import framed, percent, shortened
from bslite.explore.gpu import GpuMachine
from bslite.ops import Shape
from bslite.passes import simplify_for_gpu
from bslite.plan.core.views import channels_last
from bslite.plan.cuda import build_plan
from bslite.plan.cuda.tuning import Tuning
from bslite.spec import ModelSpec

HEADER = (
    "layer", "op", "kernel", "output", "tile", "blocks", "threads", "MFLOP", "MB", "µs", "share", "bound by",
    "library",
)  # fmt: skip
WORDS = (0, 1, 2, 3, 11, 12)  # columns of words, to the left; the others are numbers


@dataclass(frozen=True)
class GpuExplanation:
    """The plan of one model at one size for ``machine``, the GPU called ``device``. ``str()`` is a table.

    ``rows`` are the launches in order, each a `GpuRow`; layers without a launch stand between them.
    ``memory``: bytes by owner.
    """

    model: str
    shapes: tuple[Shape, ...]
    device: str
    machine: GpuMachine
    rows: tuple[GpuRow, ...]
    memory: dict[str, int]

    def __str__(self) -> str:
        return _table(self)

    @property
    def launches(self) -> list[GpuRow]:
        """The rows that are launches."""
        return [r for r in self.rows if r.kernel]

    @property
    def seconds(self) -> float:
        """The predicted seconds of all launches."""
        return sum(r.seconds for r in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "model": self.model,
            "shapes": [list(s) for s in self.shapes],
            "device": self.device,
            "machine": self.machine.as_dict(),
            "launches": len(self.launches),
            "seconds": self.seconds,
            "memory": self.memory,
            "rows": [asdict(r) for r in self.rows],
        }


def explain_on_gpu(
    spec: ModelSpec,
    shapes: Sequence[Shape],
    strides: Sequence[Shape] | None = None,
    machine: GpuMachine | None = None,
    device: int = 0,
    images: bool = False,
) -> GpuExplanation:
    """The plan for inputs of these shapes, with strides in elements (row-major if not given). ``images``:
    answers lie channels-last if an input does, as those for CUDA tensors.

    ``machine``: the GPU to plan for; by default GPU number ``device`` of this computer, and where there is
    none, a `GpuMachine` with its defaults. Raises InputError for a machine of another type.
    """
    if machine is not None and not isinstance(machine, GpuMachine):
        raise InputError(f"explain(): machine is a {type(machine).__name__}, expected a GpuMachine")
    driver, named = None, "a machine as described"
    if machine is None:
        machine, named, driver = _here(device)
    simple = simplify_for_gpu(spec)
    last = images and any(map(channels_last, shapes, strides or ()))
    tuning = Tuning(precision=current())
    plan = build_plan(simple, shapes, machine, input_strides=strides, channels_last=last, tuning=tuning)
    rows = gpu_rows(spec, simple, plan, machine, driver)
    memory = bytes_held(simple, plan)
    return GpuExplanation(spec.name, plan.shapes, named, machine, tuple(rows), memory)


def _here(device: int) -> tuple[GpuMachine, str, Any]:
    """The machine, its name and its driver; without a GPU, the assumed machine and no driver."""
    from bslite.engines.cuda.devices import driver_for

    try:
        driver = driver_for(device)
    except EngineError:
        return GpuMachine(), "an H200 by its data sheet, assumed because there is no GPU here", None
    return driver.machine, driver.name, driver


def _table(e: GpuExplanation) -> str:
    """The whole text: the machine, a line per launch, totals, then what each layer holds and why it ends."""
    cells = [HEADER, *(_cells(r, e.seconds) for r in e.rows)]
    flops, moved = sum(r.flops for r in e.launches), sum(r.bytes for r in e.launches)
    total = ("total", "", f"{len(e.launches)} launches", "", "", "", "", f"{flops / 1e6:,.2f}")
    cells.append((*total, f"{moved / 1e6:,.2f}", f"{e.seconds * 1e6:,.1f}", "100.0%", "", ""))
    measured = [r.library for r in e.rows if r.library.startswith("or ")]
    note = "(or ...: torch's, if it is faster when both are measured, on the device's first run)"
    return framed(_headline(e), cells, WORDS, note if measured else "", e.rows)


def _headline(e: GpuExplanation) -> list[str]:
    m = e.machine
    takes = " ".join(str(list(s)) for s in e.shapes)
    return [
        f"{e.model}, input {takes}: {len(e.launches)} launches, {e.seconds * 1e6:,.0f} µs by price; nothing "
        "was run or measured",
        f"planned for {e.device}: {m.sms} SMs, {2e-9 * m.sms * m.lanes * m.clock:,.0f} GFLOP/s; "
        f"L2 {m.l2_bytes / 1e6:,.0f} MB, {m.l2_bandwidth / 1e9:,.0f} GB/s; "
        f"memory {m.memory_bandwidth / 1e9:,.0f} GB/s; {m.launch * 1e6:.1f} µs a launch",
        f"memory: {', '.join(f'{name} {size / 1e6:,.2f} MB' for name, size in e.memory.items())}",
    ]


def _cells(r: GpuRow, whole: float) -> tuple[str, ...]:
    name, shape = shortened(("  " if r.inside else "") + r.name), "x".join(map(str, r.shape))
    flops = f"{r.flops / 1e6:,.2f}"
    if not r.kernel:
        return (name, r.op, "" if r.inside else "none", shape, "", "", "", flops, *[""] * 5)
    return (
        name, r.op, r.kernel, shape, r.tile, "x".join(map(str, r.grid)), "x".join(map(str, r.block)), flops,
        f"{r.bytes / 1e6:,.2f}", f"{r.seconds * 1e6:,.1f}", percent(r.seconds / whole), r.bound, r.library,
    )  # fmt: skip
