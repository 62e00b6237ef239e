"""``python -m benchmarks.gpu --check``: whether the GPU engine works on this machine, from the bottom up.

Each layer rests on the ones before it, so the first that fails is the one to look at, and those after it are
not tried: a kernel that wrote where it must not leaves a device that fails whatever is asked of it.
"""

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.origin import versions_of
from bslite import GraphBuilder, ModelSpec
from bslite.ops import REGISTRY, Case, Op
from bslite.ops.sample import sample
from bslite.verification import check as checked

PACKAGES = (
    "numpy", "numba", "llvmlite", "numba-cuda", "cuda-bindings", "cuda-core", "nvidia-nvvm",
    "nvidia-nvjitlink", "torch", "triton",
)  # fmt: skip
MOST_FLOPS = 1e8  # of a case, which the reference takes in a blink
SLOW = 30.0  # seconds after which what is being done is said
RUNS = 4  # of a model: kernels are loaded, captured, and started as a graph twice


class Layer(NamedTuple):
    """``check`` returns a line on what was found, and raises what is wrong; ``hint``: where to look then."""

    name: str
    check: Callable[[], str]
    hint: str


@contextlib.contextmanager
def watched(what: str, seconds: float = SLOW) -> Iterator[None]:
    """Say so if this takes long: a kernel that hangs would not say what it was."""
    text = f"   {what}: no answer for {seconds:.0f} s; a kernel may hang"
    timer = threading.Timer(seconds, lambda: print(text, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Wrong(Exception):
    """An answer is not what it must be."""


def layers(cases: int = 1, ops: tuple[str, ...] = ()) -> list[Layer]:
    """From the bottom up; ``cases`` of each op, of these ``ops`` or all."""
    return [
        Layer("packages", packages, "what is installed, and which of two versions Python finds first"),
        Layer("device", device, "the NVIDIA driver: nvidia-smi; CUDA_VISIBLE_DEVICES"),
        Layer("memory", memory, "engines/cuda/gpu/copies.py, gpu/context.py: copies, streams and contexts"),
        Layer("compiler", compiler, "libnvvm and nvJitLink: set CUDA_HOME, or install nvidia-nvvm"),
        Layer("smallest kernel", smallest, "engines/cuda/gpu/launch.py: the table of arguments"),
        Layer("kernels", lambda: kernels(cases, ops), "the kernel of the op that is named"),
        Layer(
            "recurrent kernels", lambda: blocks_that_wait(cases, ops),
            "kernels/cuda/recurrent/loop.py: blocks that wait for each other, launched cooperatively",
        ),
        Layer("graphs", graphs, "engines/cuda/session.py and gpu/graphs.py"),
        Layer("torch", tensors, "engines/cuda/border.py: torch's streams and memory, a capture of torch's"),
        Layer("libraries", libraries, "engines/cuda/library.py: convolutions by cuDNN, captured by torch"),
    ]  # fmt: skip


def run(found: list[Layer]) -> int:
    """Check the layers in order, a line each; exit code 1 at the first that fails, 2 if it is the device."""
    start = time.perf_counter()
    for number, layer in enumerate(found, 1):
        title = f"{number:2}/{len(found)} {layer.name}"
        try:
            with watched(title, 4 * SLOW):
                said = layer.check()
        except Exception as e:
            traceback.print_exc()
            print(f"{title}: FAILED: {type(e).__name__}: {e}\n   look at: {layer.hint}")
            print("   the layers before it work; those after it were not tried")
            return 2 if layer.name == "device" else 1
        print(f"{title}: {said}  [{time.perf_counter() - start:.1f} s]", flush=True)
    print("all layers work")
    return 0


def packages() -> str:
    """Check versions, and where numba.cuda comes from.

    numba-cuda takes numba's place by a .pth file, which Python reads in site directories only, not in those
    of PYTHONPATH.
    """
    found = versions_of(PACKAGES)
    versions = [f"{name} {found[name]}" if name in found else f"no {name}" for name in PACKAGES]
    from bslite.kernels.cuda.runtime.device import SIMULATED, cuda

    if "numba_cuda" not in str(cuda.__file__):
        raise Wrong(
            f"numba.cuda is {cuda.__file__}, not numba-cuda's; import _numba_cuda_redirector before numba"
        )
    where = "the simulator" if SIMULATED else str(cuda.__file__)
    return f"Python {sys.version.split()[0]}, {', '.join(versions)}; {where}"


def device() -> str:
    driver = driver_for()
    free, total = driver.room()
    m = driver.machine
    return (
        f"{driver.name}, {m.sms} SMs at {m.clock / 1e9:.2f} GHz, {free / 2**30:.1f} of {total / 2**30:.1f} GB"
    )


def memory() -> str:
    """There and back in chunks and odd sizes, zeros, two threads' streams by an event."""
    driver = driver_for()
    data = np.random.default_rng(0).integers(0, 2**31, (9 << 20) // 4 + 3, np.int32)
    stream, other = driver.stream(), driver.private()
    with driver.here():
        held = driver.allocate(data.nbytes, stream)
        driver.upload(held.address, data, stream)
        event = driver.event()
        driver.record(event, stream)
        driver.wait(event, other)
        driver.clear(held.address, 16, other)
        got = np.empty_like(data)
        driver.download(got, held.address, other)
    if got[:4].any() or not np.array_equal(got[4:], data[4:]):
        raise Wrong("what came back is not what was sent")
    return f"{data.nbytes:,} bytes there and back"


def compiler() -> str:
    """One kernel as machine code, by whichever way it is found."""
    from bslite.kernels.cuda import KERNELS
    from bslite.kernels.cuda.runtime.device import SIMULATED

    if SIMULATED:
        return "none in the simulator"
    driver = driver_for()
    start = time.perf_counter()
    code = driver.code("pointwise", KERNELS["pointwise"].samples[0])
    kind = "machine code" if code.image.startswith(b"\x7fELF") else "PTX for the driver to assemble"
    return f"{len(code.image):,} bytes of {kind} in {time.perf_counter() - start:.1f} s"


def smallest() -> str:
    """ReLU of 1,000 numbers: exact."""
    graph = GraphBuilder("relu")
    spec = graph.build(graph.add("relu", "r", graph.input("x", (1000,))))
    x = np.random.default_rng(0).standard_normal(1000, np.float32)
    got = on_device(spec, [x])
    if not np.array_equal(got, np.maximum(x, 0)):
        raise Wrong(f"{np.count_nonzero(got != np.maximum(x, 0))} of 1,000 numbers are wrong")
    return "1,000 numbers, exact"


RECURRENT = ("lstm", "gru", "rnn")


def kernels(cases: int, ops: tuple[str, ...], alone: bool = False) -> str:
    """Run the first cases of each op, edge cases first, and compare with the reference in float64.

    The bound is that of the reference in float32. Kernels are compiled beforehand, many at once.
    """
    chosen = [(op, case) for op, case in _cases(cases, ops) if (op.name in RECURRENT) == alone]
    models = [(op, case, *_model(op, case)) for op, case in chosen]
    compile_ahead([(spec, [x.shape for x in inputs]) for _, _, spec, inputs in models])
    for op, case, spec, inputs in models:
        what = f"op {op.name!r}, case {case.label!r}"
        try:
            with watched(what):
                agree(spec, inputs, on_device(spec, inputs))
        except Exception as e:
            raise Wrong(f"{what}: {type(e).__name__}: {e}") from e
    return f"{len(models)} cases of {len({op.name for op, *_ in models})} ops"


def blocks_that_wait(cases: int, ops: tuple[str, ...]) -> str:
    """Recurrent layers: small ones, and one whose blocks are a good part of the GPU."""
    said = kernels(cases, ops, alone=True)
    hidden, steps = (256, 20) if driver_for().machine.sms > 1 else (4, 3)
    rng = np.random.default_rng(0)
    graph = GraphBuilder("lstm")
    for name in ("weight_ih", "weight_hh"):
        graph.params[name] = rng.standard_normal((4 * hidden, hidden), np.float32) / hidden**0.5
    x = graph.input("x", (steps, 1, hidden))
    spec = graph.build(graph.add("lstm", "l", x, params={n: n for n in ("weight_ih", "weight_hh")}))
    given = rng.standard_normal((steps, 1, hidden), np.float32)
    start = time.perf_counter()
    for _ in range(RUNS):
        agree(spec, [given], on_device(spec, [given]))
    return f"{said}; {RUNS} runs of {hidden} units, {steps} steps in {time.perf_counter() - start:.1f} s"


def _cases(cases: int, ops: tuple[str, ...]) -> Iterator[tuple[Op, Case]]:
    from bslite.ops import parse_attrs
    from bslite.plan.core.lowering import CUDA

    for name in ops or sorted(set(CUDA) & set(REGISTRY)):
        op, taken = REGISTRY[name], 0
        for case in op.cases():
            attrs = parse_attrs(op, case.attrs)
            shape = op.shape(case.inputs, case.params, attrs)
            if (
                op.arity[0]
                and taken < cases
                and op.flops(case.inputs, shape, case.params, attrs) < MOST_FLOPS
            ):
                taken += 1
                yield op, case


def _model(op: Op, case: Case) -> tuple[ModelSpec, list[Any]]:
    inputs, params = sample(op, case, 0)
    graph = GraphBuilder(op.name)
    graph.params.update(params)
    names = [graph.input(f"x{i}", x.shape, dtype=x.dtype.name) for i, x in enumerate(inputs)]
    return graph.build(graph.add(op.name, "op", *names, params={r: r for r in params}, **case.attrs)), inputs


def _network() -> tuple[ModelSpec, Any]:
    """Convolutions, a pool, a residual and a product: launches of several kinds, one after the other."""
    rng = np.random.default_rng(0)
    graph = GraphBuilder("network")
    shapes = {"w": (8, 4, 3, 3), "b": (8,), "v": (8, 8, 1, 1), "l": (6, 72)}
    graph.params |= {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    x = graph.add("tanh", "start", graph.input("x", (2, 4, 6, 6)))
    y = graph.add("conv2d", "a", x, params={"weight": "w", "bias": "b"}, padding=(1, 1, 1, 1))
    y = graph.add("relu", "ra", y)
    y = graph.add("add", "sum", graph.add("conv2d", "c", y, params={"weight": "v"}), y)
    y = graph.add("max_pool2d", "p", graph.add("relu", "rb", y), kernel=(2, 2), stride=(2, 2))
    y = graph.add("linear", "l", graph.add("flatten", "f", y, start_axis=1), params={"weight": "l"})
    return graph.build(graph.add("sigmoid", "end", y)), rng.standard_normal((2, 4, 6, 6), np.float32)


def graphs() -> str:
    """A model that runs again and again, other numbers each time: captured, and the same bits."""
    from bslite.engines.cuda.engine import engine_for

    spec, x = _network()
    compile_ahead([(spec, [x.shape])])
    seen = [on_device(spec, [x * (1 + run // 2)]) for run in range(2 * RUNS)]
    for run, got in enumerate(seen):
        agree(spec, [x * (1 + run // 2)], got)
        if run % 2 and got.tobytes() != seen[run - 1].tobytes():
            raise Wrong("the bits change from run to run")
    (session,) = engine_for(spec)._sessions.values()
    if session.no_graphs and session.driver.graphs:
        raise Wrong(f"launches are not captured: {session.no_graphs}")
    return session.no_graphs or f"{len(session.plan.steps)} launches in graphs, the same bits each time"


def tensors() -> str:
    """torch's tensors, on its default stream, on another, in a graph of torch's."""
    if (torch := torch_on_gpu()) is None:
        return "torch has no GPU: not tried"
    from bslite.api import run as bslite_run

    spec, x = _network()

    def call(given: Any) -> Any:
        return bslite_run(spec, given, backend="cuda")

    side, made = torch.cuda.Stream(), []
    for stream in (torch.cuda.default_stream(), side, torch.cuda.default_stream(), side):
        with torch.cuda.stream(stream):
            for layout in (torch.contiguous_format, torch.channels_last):
                made.append(call(torch.from_numpy(x).cuda().to(memory_format=layout)))
    torch.cuda.synchronize()
    for y in made:
        agree(spec, [x], y.cpu().numpy())
    given = torch.from_numpy(x).cuda()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call(given)
    for factor in (1, 2):
        given.copy_(torch.from_numpy(factor * x))
        graph.replay()
        agree(spec, [factor * x], y.cpu().numpy())
    return f"{len(made)} runs on two streams, one graph of torch's"


def libraries() -> str:
    """Both ways of a convolution and of a product, measured."""
    if torch_on_gpu() is None:
        return "torch has no GPU: not tried"
    from bslite.engines.cuda.engine import engine_for
    from bslite.engines.cuda.library import library_of

    spec, x = _network()
    library = library_of(driver_for())
    assert library is not None
    library._known.clear()  # in this process: they are measured anew
    agree(spec, [x], on_device(spec, [x]))
    found = list(library._known.values())
    missing = [times for times in found if times[1] >= 1e30]
    if missing or not found:
        raise Wrong(f"{len(missing) or 'all'} of the library's calls fail; warnings above say why")
    workspace = next(iter(engine_for(spec)._sessions.values()))._free[0]
    theirs = sum(hasattr(launch, "by_torch") for launch in workspace.launches)
    each = ", ".join(f"{1e6 * ours:.1f} / {1e6 * other:.1f}" for ours, other in found)
    return f"ours / torch's in microseconds: {each}; {theirs} left to torch"


# -- what the layers share -----------------------------------------------------------------------------


def driver_for() -> Any:
    from bslite.engines.cuda import engine

    return engine.driver_for(0)


def torch_on_gpu() -> Any:
    """torch, if it has a GPU and this is not the simulator."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() and getattr(driver_for(), "torch", None) else None


def on_device(spec: ModelSpec, inputs: list[Any]) -> Any:
    from bslite.api import run as bslite_run

    return bslite_run(spec, inputs, backend="cuda")


def agree(spec: ModelSpec, inputs: list[Any], got: Any) -> None:
    """Wrong, if an answer is further from float64 than a few times the reference in float32 is."""
    from bslite import reference

    exact, peer = (reference.run(spec, inputs, dtype)[0] for dtype in (np.float64, np.float32))
    if got.shape != exact.shape or got.dtype != peer.dtype:
        raise Wrong(f"{got.dtype} {got.shape}, expected {peer.dtype} {exact.shape}")
    if exact.dtype.kind != "f":
        if not np.array_equal(got, exact):
            raise Wrong(f"{np.count_nonzero(got != exact)} of {exact.size} integers are wrong")
        return
    found = checked("answer", "", got, exact, peer)
    if not found.specials:
        raise Wrong("NaN or infinity in other places than expected")
    if not found.passed:
        raise Wrong(f"relative error {found.error:.2g}, at most {found.bound:.2g} is float32's")


def compile_ahead(models: list[tuple[ModelSpec, list[Any]]]) -> None:
    """Kernels of these models and input shapes, many at once."""
    from benchmarks.gpu.ahead import Compilers, wanted_by
    from bslite.kernels.cuda.runtime.device import SIMULATED

    driver = driver_for()
    if SIMULATED:
        return
    with contextlib.closing(Compilers(driver._capability)) as compilers:
        compilers.compile({w for spec, shapes in models for w in wanted_by(spec, shapes, driver.machine)})
