"""Convolutions and products by torch's libraries (cuDNN, cuBLAS) where they are faster than our kernels.

A launch says in ``library`` which call of torch's makes the same (`bslite.plan.cuda.library`). Both ways are
captured and measured when a plan first meets a problem on a device, and the seconds kept on disk: the same
file gives the same choice, and so the same bits. torch computes in full float32, by deterministic algorithms
only.
"""

import json
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bslite.cache import machines_dir, read_json, write_json
from bslite.engines.cuda.driver import Driver, Graph, Memory
from bslite.engines.cuda.program import Ready
from bslite.engines.cuda.strict import strict
from bslite.ops import Shape
from bslite.plan.core.views import View
from bslite.plan.cuda.launch import CudaPlan, Launch
from bslite.plan.cuda.library import LibraryCall

FORMAT = 1
LONG = 5e-4  # seconds that a graph takes, if repeating a way MOST times does: starting it is then little
MOST = 64
ROUNDS = 5
#: Activations that torch applies while it stores the result where it belongs.
STORES = ("identity", "relu", "clamp")


class TorchCall:
    """One call of torch's in the place of launches: see `Launch`."""

    ends: tuple[()] = ()  # it touches nothing of the caller's
    by_torch = True

    def __init__(self, driver: Any, form: LibraryCall, tensors: Mapping[str, Any]) -> None:
        self._driver, self._form, self._tensors = driver, form, tensors

    def start(self, stream: int, callers: Mapping[str, int]) -> None:
        """Start the call on this stream."""
        torch = self._driver.torch
        with torch.cuda.stream(self._driver.as_torchs(stream)), strict(torch):
            compute(torch, self._form, **self._tensors)


def compute(
    torch: Any, form: LibraryCall, x: Any, w: Any, bias: Any, residual: Any, y: Any
) -> None:  # fmt: skip
    """``y = activation(op(x, w) + bias + residual)``, written in place, channels-last or strided."""
    if form.op == "linear":
        made = torch.nn.functional.linear(x, w, bias)
    else:
        convolve = getattr(torch.nn.functional, form.op)
        made = convolve(x, w, bias, form.stride, form.padding, form.dilation, form.groups)
    if residual is not None:
        made += residual
    if form.activation.function == "relu":
        torch.clamp_min(made, 0, out=y)
    elif form.activation.function == "clamp":
        torch.clamp(made, form.activation.a, form.activation.b, out=y)
    else:
        y.copy_(made)


def torch_call(
    plan: CudaPlan,
    step: Launch,
    driver: Any,
    bases: Mapping[str, int],
    constants: Mapping[str, Memory],
    params: Mapping[str, Shape],
) -> TorchCall | None:
    """What torch does in the place of ``step``; None if it touches the caller's memory or cannot be torch's.

    ``params``: shapes of the model's parameters, by key.
    """
    form = step.library
    assert form is not None
    if form.activation.function not in STORES or any(view.buffer not in bases for view in form.views):
        return None

    def tensor(address: int, shape: Sequence[int], strides: Sequence[int]) -> Any:
        return driver.tensor(address, tuple(shape), tuple(strides))

    def of_view(view: View | None) -> Any:
        if view is None:
            return None
        return tensor(bases[view.buffer] + 4 * view.offset, view.shape, view.strides)

    def of_const(name: str, shape: Sequence[int], channels_last: bool = False) -> Any:
        k, *rest = shape
        strides = [1]
        for n in reversed((*rest[1:], rest[0]) if channels_last else rest):
            strides.insert(0, strides[0] * n)
        if channels_last:  # [K, taps..., C] in memory, [K, C, taps...] to torch
            strides = [strides[0], strides[-1], *strides[1:-1]]
        return tensor(constants[name].address, (k, *rest), strides)

    w, bias = step.operands["w"][0], step.operands["biases"][0]
    shape = params[plan.consts[w].keys[0]]
    return TorchCall(driver, form, {
        "x": of_view(form.x), "y": of_view(form.y), "residual": of_view(form.residual),
        "w": of_const(w, shape, channels_last=form.op != "linear"),
        "bias": of_const(bias, shape[:1]) if bias != w else None,
    })  # fmt: skip


class Library:
    """Which problems torch's libraries are faster at on a device: measured, remembered in ``file``."""

    def __init__(self, driver: Driver, file: Path | None, version: str) -> None:
        self._driver, self._file, self._version = driver, file, version
        self._known: dict[str, list[float]] = _load(file)
        self._lock = threading.Lock()

    def choose(
        self,
        plan: CudaPlan,
        launches: Sequence[Ready],
        alternative: Callable[[Launch], TorchCall | None],
        measure: bool = True,
    ) -> list[Any]:
        """The launches, each replaced by torch's call where that is faster.

        A problem that is not known is measured, or stays ours if ``measure`` is false.
        """
        chosen: list[Any] = []
        ours: list[Any]
        index, learnt = 0, False
        while index < len(launches):
            form = plan.steps[index].library
            count = form.steps if form else 1
            ours = list(launches[index : index + count])
            theirs = None
            if form and not any(launch.ends for launch in ours):
                theirs = alternative(plan.steps[index])
            if theirs is not None:
                key = self.key(plan.steps[index])
                with self._lock:  # one measurement at a time: they would be of each other
                    if key not in self._known and measure:
                        self._known[key] = self._measured(ours, theirs)
                        learnt = True
                seconds = self._known.get(key)
                if seconds is not None and seconds[1] < seconds[0]:
                    ours = [theirs]
            chosen += ours
            index += count
        if learnt:
            self._driver.trim()  # each capture had memory of its own
            self._save()
        return chosen

    def key(self, step: Launch) -> str:
        """What the times of a step depend on: the problem, and how the planner cuts it for our kernels."""
        assert step.library is not None
        form = dict(vars(step.library))
        form["views"] = [(view.shape, view.strides) for view in step.library.views]
        form["residual"] = form["residual"] is not None
        del form["x"], form["y"]
        form["bias"] = step.operands["w"][0] != step.operands["biases"][0]
        form["ours"] = [step.kernel, sorted(step.variant.constants().items()), step.grid]
        return json.dumps([self._version, sorted(form.items())])

    def _measured(self, ours: Sequence[Any], theirs: TorchCall) -> list[float]:
        """Median seconds of both ways, taken in turns because the GPU's clock rises while it works.

        A call of torch's that cannot be run or captured is never the faster one.
        """
        driver = self._driver
        with driver.here():
            mine = self._repeated(ours)
            try:
                other = self._repeated([theirs])
            except Exception as e:
                driver.finish(driver.private())  # what was started writes where the run that follows does
                text = f"bslite leaves a layer to its own kernel: torch's failed ({e})"
                warnings.warn(text, stacklevel=2)
                return [self._median([mine])[0], 1e30]
            return self._median([mine, other])

    def _repeated(self, way: Sequence[Any]) -> tuple[Graph, int]:
        """A graph that is long enough to be timed, and how many times it runs the way."""
        driver = self._driver

        def graph(count: int) -> Graph:
            def run(stream: int) -> None:
                for _ in range(count):
                    for launch in way:
                        launch.start(stream, {})

            return driver.capture(run, by_torch=any(getattr(w, "by_torch", False) for w in way))

        for launch in way:  # loads the kernels, makes the libraries choose theirs
            launch.start(driver.private(), {})
        once = graph(1)
        once.start(driver.private())
        count = max(1, min(MOST, round(LONG / max(1e-9, min(driver.seconds(once.start, 2))))))
        return (graph(count) if count > 1 else once), count

    def _median(self, ways: Sequence[tuple[Graph, int]]) -> list[float]:
        """Median seconds of one run of each way; each graph is started while the one before it runs."""
        found = [
            [self._driver.seconds(graph.start, 2)[-1] / count for graph, count in ways] for _ in range(ROUNDS)
        ]
        return [sorted(each)[ROUNDS // 2] for each in zip(*found, strict=True)]

    def seconds(self, steps: Sequence[Launch]) -> list[float] | None:
        """Measured seconds of steps that torch's call may replace: ours, torch's; None if there are none."""
        return self._known.get(self.key(steps[0]))

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            seconds = {**_load(self._file), **self._known}  # with what other processes have measured since
            write_json(self._file, FORMAT, {"seconds": seconds})
        except OSError as e:
            warnings.warn(f"bslite cannot keep its measurements in {self._file} ({e})", stacklevel=2)


def _load(file: Path | None) -> dict[str, list[float]]:
    """Times measured before. A file that cannot be used is a warning, not an error."""
    if file is None:
        return {}

    def parse(data: dict[str, Any]) -> dict[str, list[float]]:
        return {str(k): [float(ours), float(theirs)] for k, (ours, theirs) in data["seconds"].items()}

    return read_json(file, FORMAT, parse, "its measurements", "it makes them anew") or {}


def library_of(driver: Any) -> Library | None:
    """The library of a device, if torch is there to call; made on first use and kept on the driver."""
    torch = getattr(driver, "torch", None)
    if not torch:
        return None
    if getattr(driver, "library", None) is None:
        from bslite.kernels.cuda.runtime.compile import fingerprint

        name = re.sub(r"[^a-z0-9]+", "-", driver.name.partition("(")[2].lower()).strip("-")
        version = f"{torch.__version__} {torch.backends.cudnn.version()} {fingerprint()}"
        driver.library = Library(driver, machines_dir() / f"gpu-{name}.json", version)
    found: Library = driver.library
    return found
