"""Compares an engine with the oracle in float64, layer by layer and as a whole.

The bound on an engine's error is what float32 costs any engine: the reference in float32, and torch where it
is installed, are measured against the same float64 run, and the engine may be at most `FACTOR` times as far
from it. Errors add up through a network, so a layer is compared with a float32 run of the same depth, not
with a constant.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bslite.errors import EngineError, InputError
from bslite.ops import Shape
from bslite.spec import Array, ModelSpec, Node
from bslite.spec.open import OpenModel, Ran, asked, in_order, no_engine

#: How many times a float32 peer's error the engine's may be,
FACTOR = 4.0
#: plus half a unit in the last place: what two exact answers, each rounded once, may differ by.
TINY = 2.0**-24


@dataclass(frozen=True)
class Check:
    """One value. Errors are relative L2 against float64.

    ``specials``: NaN and infinities stand where they do in the reference.
    """

    name: str
    op: str
    shape: Shape
    error: float
    reference_error: float  # of the reference computed in float32
    torch_error: float | None  # of torch in float32, where there is one
    specials: bool
    exactly: bool = False  # texts and the like, which have no error: ``specials`` says whether they are right

    @property
    def bound(self) -> float:
        """The largest error that passes."""
        peer = self.reference_error if self.torch_error is None else self.torch_error
        return FACTOR * peer + TINY

    @property
    def passed(self) -> bool:
        """Whether the error is within the bound and NaN stands where it belongs; a NaN error is not."""
        return self.specials and self.error <= self.bound


@dataclass(frozen=True)
class Verification:
    """What `verify` found. ``str()`` is a table, ``as_dict()`` plain data, ``passed`` the verdict."""

    model: str
    layers: tuple[Check, ...]
    outputs: tuple[Check, ...]
    repeatable: bool  # two runs gave the same bits
    threads_agree: bool | None  # one thread and all threads gave the same bits; None: there are no threads
    backend: str = "cpu"

    @property
    def passed(self) -> bool:
        """Whether every layer and output is within its bound and two runs gave the same bits."""
        return self.repeatable and self.threads_agree is not False and not self.failures

    @property
    def failures(self) -> list[Check]:
        """The layers, then the outputs, that did not pass."""
        return [check for check in (*self.layers, *self.outputs) if not check.passed]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        derived = [
            [{**asdict(c), "bound": c.bound, "passed": c.passed} for c in checks]
            for checks in (self.layers, self.outputs)
        ]
        return {**asdict(self), "layers": derived[0], "outputs": derived[1], "passed": self.passed}

    def __str__(self) -> str:
        header = ("layer", "op", "output", "bslite", "float32", "torch", "")
        body = [_cells(c) for c in self.layers]
        tail = [_cells(c) for c in self.outputs]
        widths = [max(map(len, column)) for column in zip(header, *body, *tail, strict=True)]
        rule = tuple("-" * w for w in widths)
        rows = [header, rule, *body, rule, *tail]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        title = f"{self.model}: relative L2 error against the float64 reference"
        return "\n".join([title, *lines, "", self.summary()])

    def summary(self) -> str:
        """The verdict in a few lines."""
        failed = self.failures
        verdict = "passed" if self.passed else "FAILED"
        again = f"same bits from run to run: {_word(self.repeatable)}"
        if self.threads_agree is not None:
            again += f"; from one thread and all: {_word(self.threads_agree)}"
        where = "" if self.backend == "cpu" else f" on {self.backend}"
        lines = [
            f"{verdict}: {len(self.layers)} layers and {len(self.outputs)} output(s){where},"
            f" {len(failed)} out of bound (at most {FACTOR:g} times the error of float32)",
            again,
        ]
        if failed:
            first = failed[0]
            why = f"error {first.error:.2e}, bound {first.bound:.2e}"
            if first.exactly:
                why = "not what the reference has"
            elif not first.specials:
                why = "NaN or infinity where the reference has none, or the reverse"
            lines.append(f"first out of bound: {first.name} ({first.op}): {why}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Engine:
    """The engine to verify: ``backend`` "cpu" with ``threads`` threads, or "cuda" on this process's GPU."""

    backend: str = "cpu"
    threads: int | None = None
    device: int = 0

    def run(self, spec: ModelSpec, inputs: list[Array]) -> list[Array]:
        """Outputs for checked arrays."""
        module, options = self._module()
        made: list[Array] = module.run(spec, inputs, **options)
        return made

    def trace(self, spec: ModelSpec, inputs: list[Array]) -> Iterator[tuple[str, Array]]:
        """Yield every value that the engine makes, by name."""
        module, options = self._module()
        yield from module.trace(spec, inputs, **options)

    def _module(self) -> tuple[Any, dict[str, Any]]:
        if self.backend == "cuda":
            from bslite.engines import cuda

            return cuda, {"device": self.device}
        from bslite.engines import cpu

        return cpu, {"threads": self.threads}


CPU = Engine()


def verify(
    spec: Any,
    x: Any,
    *,
    module: Callable[..., Any] | None = None,
    threads: int | None = None,
    on_layer: Callable[[str], None] | None = None,
    backend: str | None = None,
) -> Verification:
    """Compare an engine with the reference on input ``x``; both may be anything that `bslite.run` takes.

    ``backend``: "cpu" or "cuda"; by default the GPU for CUDA tensors, else the CPU. On a GPU the second run
    is that of captured graphs.

    ``module``: the same network in torch (an ``nn.Module`` in eval mode, or any function of tensors), whose
    own error then sets the bound of the outputs. Of a compiled torch module and of one made by
    `bslite.optimize`, the traced graph in torch does. InputError if bslite runs the module in several parts.
    ``threads`` as for `bslite.run`. ``on_layer`` is called with
    each layer's name as the references reach it. A few values per precision are held at a time, not the whole
    network.
    """
    from bslite.api import as_arrays, on_host, run, settled

    spec, backend, threads = asked(spec, backend, threads)
    if hasattr(type(spec), "_bslite_verified"):  # made by `bslite.optimize`: its class knows how
        if backend not in (None, "cpu"):
            raise EngineError(f"a torch module is verified where its parameters are, not on {backend!r}")
        spec, x, theirs = type(spec)._bslite_verified(spec, x)
        module, backend = theirs if module is None else module, None
    if isinstance(spec, OpenModel):
        each = in_order(spec, x)
        found = settled(spec, each)
        if found is None:
            return _verify_pieces(spec, each, module, threads, on_layer, backend)
        spec, x = found
    elif not isinstance(spec, ModelSpec):
        raise InputError(
            f"verify() takes a ModelSpec first, got {type(spec).__name__}; "
            "of any other model verify what bslite.compile makes of it"
        )
    engine = engine_for(list(x) if isinstance(x, (list, tuple)) else [x], backend, threads)
    first = _arrays(run(spec, x, threads=threads, backend=engine.backend))  # also checks the input, first
    again = _arrays(run(spec, x, threads=threads, backend=engine.backend))
    agree = None
    if engine.backend == "cpu":
        agree = _same_bits(first, _arrays(run(spec, x, threads=1)))
    inputs, _ = as_arrays(spec, on_host(x))
    kept: dict[str, tuple[Array, Array]] = {}  # the references' values of the outputs
    layers = tuple(check_layers(spec, inputs, engine, {}, kept, on_layer))
    for declared, given in zip(spec.inputs, inputs, strict=True):
        if declared.name in spec.outputs:
            kept[declared.name] = given.astype(np.float64), given
    theirs = _torch_outputs(module, inputs)
    ops = {node.name: node.op for node in spec.nodes}
    outputs = tuple(
        check(name, "output " + ops.get(name, "input"), got, *kept[name], theirs[i] if theirs else None)
        for i, (name, got) in enumerate(zip(spec.outputs, first, strict=True))
    )
    return Verification(spec.name, layers, outputs, _same_bits(first, again), agree, engine.backend)


def _verify_pieces(
    model: OpenModel, given: list[Any], module: Callable[..., Any] | None, threads: int | None,
    on_layer: Callable[[str], None] | None, backend: str | None,
) -> Verification:  # fmt: skip
    """As `verify`, of a model that several ModelSpecs compute: the layers of each for what it gets in a run,
    the outputs against those of the whole model in float64.
    """
    from bslite.api import as_arrays, in_pieces

    engine = engine_for(given, backend, threads)
    arrays: list[Any] = [x if isinstance(x, list) else _arrays(x)[0] for x in given]
    ran: list[Ran] = []
    first = in_pieces(model, arrays, engine.backend, threads)
    again = model.in_pieces(arrays, engine.backend, threads, ran)
    agree = None
    if engine.backend == "cpu":
        agree = _same_bits(first, model.in_pieces(arrays, "cpu", 1))
    exact, single = (model.in_pieces(arrays, b, None) for b in ("reference64", "reference"))
    layers = [
        replace(c, name=f"{number}: {c.name}")
        for number, r in enumerate(ran, 1)
        if r.spec is not None
        for c in check_layers(r.spec, as_arrays(r.spec, r.inputs)[0], engine, {}, None, on_layer)
    ]
    theirs = _torch_outputs(module, arrays)
    outputs = tuple(
        checked
        for i, (port, got, wide, near) in enumerate(zip(model.outputs, first, exact, single, strict=True))
        for checked in _check_any(port.name, got, wide, near, theirs[i] if theirs else None)
    )
    return Verification(model.name, tuple(layers), outputs, _same_bits(first, again), agree, engine.backend)


def _check_any(name: str, got: Any, exact: Any, single: Any, theirs: Array | None) -> Iterator[Check]:
    """An output of any kind: a check of each array and number in its sequences and maps. Texts are right
    where they are those of the reference; sequences and maps have to have its lengths and keys.
    """
    if isinstance(got, (list, tuple, dict)) and type(got) is type(exact) and len(got) == len(exact):
        keys = list(got) if isinstance(got, dict) else range(len(got))
        if len(single) == len(got) and (not isinstance(got, dict) or set(got) == set(exact) == set(single)):
            for key in keys:
                yield from _check_any(f"{name}[{key!r}]", got[key], exact[key], single[key], None)
            return
    if isinstance(got, (np.ndarray, np.number, float)) and np.asarray(got).dtype.kind in "biuf":
        yield check(name, "output", np.asarray(got), np.asarray(exact), np.asarray(single), theirs)
        return
    shape = getattr(got, "shape", (len(got) if isinstance(got, (list, tuple, dict)) else 1,))
    yield Check(name, "output", shape, 0.0, 0.0, None, _same_bits([got], [single]), exactly=True)


def engine_for(given: Sequence[Any], backend: str | None, threads: int | None) -> Engine:
    """The engine of ``backend``; if that is None, of the device that the inputs ``given`` are on."""
    torch = sys.modules.get("torch")
    on_gpu = [v.device for v in given if torch and isinstance(v, torch.Tensor) and v.device.type == "cuda"]
    backend = backend or ("cuda" if on_gpu else "cpu")
    if backend not in ("cpu", "cuda"):
        raise no_engine(backend)
    return Engine(backend, threads, (on_gpu[0].index or 0) if on_gpu else 0)


def outputs_pass(spec: ModelSpec, inputs: list[Array], engine: Engine = CPU) -> bool:
    """Whether every output passes, of the engine run normally, without keeping values, for checked inputs."""
    made = dict(zip(spec.outputs, engine.run(spec, inputs), strict=True))
    return all(
        check(node.name, node.op, made[node.name], exact, single).passed
        for node, exact, single in _references(spec, inputs)
        if node.name in made
    )


def check(name: str, op: str, got: Array, exact: Array, single: Array, torch: Array | None = None) -> Check:
    """Compare one value with the float64 and the float32 reference."""
    specials = got.shape == exact.shape and _same_specials(got, single)
    return Check(
        name,
        op,
        tuple(got.shape),
        relative_error(got, exact),
        relative_error(single, exact),
        None if torch is None else relative_error(torch, exact),
        specials,
    )


def relative_error(got: Array, exact: Array) -> float:
    """``|got - exact| / |exact|`` in L2 over the elements finite in both; absolute where ``exact`` is zero.

    Infinite where the shapes differ: nothing is broadcast.
    """
    if got.shape != exact.shape:
        return float("inf")
    finite = np.isfinite(got) & np.isfinite(exact)
    want = exact[finite].astype(np.float64)
    difference = float(np.linalg.norm(got[finite].astype(np.float64) - want))
    size = float(np.linalg.norm(want))
    return difference / size if size else difference


def check_layers(
    spec: ModelSpec,
    inputs: list[Array],
    engine: Engine,
    theirs: Mapping[str, Array],
    kept: dict[str, tuple[Array, Array]] | None = None,
    on_layer: Callable[[str], None] | None = None,
) -> list[Check]:
    """A check of every value the engine makes, in the order of the layers, for checked inputs.

    ``theirs``: torch's values in float32, by layer, where there are some. The references' values of the
    model's outputs are put into ``kept``. Engine and references advance together. What the engine makes ahead
    of the model's order waits its turn; what it makes behind is met in another pass over the references.
    Values that passes make are none of the model's.
    """
    order = {node.name: index for index, node in enumerate(spec.nodes)}
    values = ((name, made) for name, made in engine.trace(spec, inputs) if name in order)
    waiting: dict[str, Array] = {}
    checks: list[Check] = []
    reached = -1

    def meet(node: Node, exact: Array, single: Array) -> None:
        if node.name in waiting:
            got = waiting.pop(node.name)
            checks.append(check(node.name, node.op, got, exact, single, theirs.get(node.name)))

    for index, (node, exact, single) in enumerate(_references(spec, inputs)):
        if on_layer:
            on_layer(node.name)
        if kept is not None and node.name in spec.outputs:
            kept[node.name] = exact, single
        while reached < index and (made := next(values, None)) is not None:
            waiting[made[0]] = made[1]
            reached = order[made[0]]
        meet(node, exact, single)
    waiting.update(values)
    if waiting:
        for reference in _references(spec, inputs):
            meet(*reference)
    return sorted(checks, key=lambda c: order[c.name])


def _references(spec: ModelSpec, inputs: list[Array]) -> Iterator[tuple[Node, Array, Array]]:
    """Each layer's value in float64 and in float32, side by side."""
    from bslite.reference import layers

    double = layers(spec, inputs, np.float64)
    single = layers(spec, inputs, np.float32)
    for (node, exact), (_, near) in zip(double, single, strict=True):
        yield node, exact, near


def _arrays(x: Any) -> list[Array]:
    """What `bslite.run` or a torch module returns, as a list of NumPy arrays."""
    values = list(x) if isinstance(x, (list, tuple)) else [x]
    torch = sys.modules.get("torch")  # a tensor cannot exist without it, so never import it here
    return [
        v.detach().cpu().numpy() if torch and isinstance(v, torch.Tensor) else np.asarray(v) for v in values
    ]


def _torch_outputs(module: Callable[..., Any] | None, inputs: list[Array]) -> list[Array]:
    """What ``module`` makes of the inputs in float32; nothing where there is none."""
    if module is None:
        return []
    import torch

    from bslite.engines.cuda.library import strict

    held = next(module.parameters(), None) if isinstance(module, torch.nn.Module) else None
    device = "cpu" if held is None else held.device
    with torch.no_grad(), strict(torch):
        made = module(*(torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in inputs))
    return _arrays(list(made.values()) if isinstance(made, dict) else made)


def _same_bits(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether arrays, sequences and maps of them have the same bits, texts the same letters."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind != "O":
            same = a.shape == b.shape and a.tobytes() == b.tobytes()
        elif isinstance(a, np.ndarray):
            same = a.shape == b.shape and a.tolist() == b.tolist()
        elif isinstance(a, dict):
            same = list(a) == list(b) and _same_bits(list(a.values()), list(b.values()))
        elif isinstance(a, list):
            same = _same_bits(a, b)
        else:
            same = a == b or (a != a and b != b)
        if not same:
            return False
    return True


def _same_specials(got: Array, want: Array) -> bool:
    """NaN and both infinities stand in the same places."""
    return all(np.array_equal(find(got), find(want)) for find in (np.isnan, np.isposinf, np.isneginf))


def _cells(check: Check) -> tuple[str, ...]:
    shape = str(list(check.shape))
    torch = "" if check.torch_error is None else f"{check.torch_error:.1e}"
    verdict = "" if check.passed else "FAIL"
    return check.name, check.op, shape, f"{check.error:.1e}", f"{check.reference_error:.1e}", torch, verdict


def _word(value: bool) -> str:
    return "yes" if value else "NO"
