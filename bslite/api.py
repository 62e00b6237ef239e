"""The public calls: check what the user gave, then hand it to an engine."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.arithmetic import current, precision_of
from bslite.arithmetic import precision as least
from bslite.errors import EngineError, InputError, IntegerRangeError
from bslite.ops import Shape
from bslite.spec import Array, Input, ModelSpec
from bslite.spec.kinds import shapes_of
from bslite.spec.open import OpenModel, asked, in_order

BACKENDS = ("cpu", "cuda", "reference", "reference64")
MOST_CALLS = 64  # kinds of inputs, of one model, for which a call is kept prepared


def run(
    spec: Any, x: Any, *, backend: str | None = None, layerwise: bool = False, threads: int | None = None,
    precision: str | None = None,
) -> Any:  # fmt: skip
    """Run a model: returns an array, or a list of arrays if the model has several outputs.

    ``spec`` is a `ModelSpec`, what `from_torch` or `from_onnx` returned, or a `CompiledModel`, which runs on
    its own device and threads where none are given here.

    ``x`` is a float32 NumPy array or torch tensor in the logical layout of the model's input (``[N, C, H,
    W]`` for images, in channels_last memory or any other), or a list, a tuple or a dict by name of them for
    several inputs. Torch tensors give torch tensors on the same device, without gradients: `bslite.optimize`
    keeps those, `bslite.gradient` is a model of them.

    ``backend="cpu"`` is the fast engine, ``"cuda"`` the engine for GPUs, ``"reference"`` the plain NumPy
    oracle in float32, ``"reference64"`` the same in float64, whose results are float64 where the model's are
    float32. By default CUDA tensors run on the GPU that they are on, all other inputs on the CPU. The
    ``"cuda"`` backend copies inputs of the host to the GPU, and their results back. CUDA tensors stay where
    they are and run on torch's current stream, so, as with torch's own operations, the call may return before
    its results are ready. ``layerwise`` runs an engine's kernels one layer at a time and fuses nothing.
    ``threads`` of the CPU defaults to the cores that this process may use. ``precision`` is the least
    accuracy of products, one of `bslite.arithmetic.Precision`; by default what `bslite.precision` says, else
    "float32".

    Raises InputError if ``x`` is not what the model takes, SpecError if a layer cannot take the size that
    reaches it, EngineError for a backend or precision that does not exist or cannot run here. Nothing is ever
    cast.
    """
    if precision is None and type(spec) is not ModelSpec:
        precision = getattr(spec, "precision", None)  # that of a compiled model
    if precision is not None and precision_of(precision) is not current():
        with least(precision):
            return run(spec, x, backend=backend, layerwise=layerwise, threads=threads, precision=precision)
    if type(spec) is ModelSpec and (backend is None or backend == "cpu") and "_calls" in spec.__dict__:
        given, as_torch = x if type(x) in (list, tuple) else in_order(spec, x), False
        if (call := prepared(spec, given, threads, layerwise)) is None:
            given, as_torch = viewed(given)
            call = prepared(spec, given, threads, layerwise) if as_torch else None
        if call is not None and (made := call(given)) is not None:
            return handed(made, as_torch)
    model, (spec, backend, threads) = spec, asked(spec, backend, threads)
    if isinstance(spec, OpenModel):
        each = in_order(spec, x)
        found = spec.uncut(each)
        if found is None:
            outputs = in_pieces(spec, each, backend, threads, layerwise)
        else:
            options: dict[str, Any] = {"backend": backend, "layerwise": layerwise, "threads": threads}
            try:
                made = [] if found.spec is None else run(found.spec, found.inputs, **options)
                outputs = found.outputs(made if isinstance(made, list) else [made])
            except IntegerRangeError:
                if layerwise or not spec.divides:
                    raise
                outputs = in_pieces(spec, each, backend, threads)
        return outputs[0] if len(outputs) == 1 else outputs
    if hasattr(type(spec), "_bslite_explain") and spec is not model:  # a module, which bslite.compile took
        if layerwise or (backend, threads, current()) != (model.device, model.threads, model.precision):
            raise InputError(
                f"model {model.name!r} is a compiled torch module, which runs as it was compiled: run() "
                "takes no other backend, threads or precision and no layerwise; "
                "give it bslite.from_torch(module, x)"
            )
        made = model(*(x if isinstance(x, (list, tuple)) else [x])).tuple()
        return made[0] if len(made) == 1 else list(made)
    if not isinstance(spec, ModelSpec):
        raise InputError(
            f"run() takes a ModelSpec first, got {type(spec).__name__}; "
            "make one with bslite.from_torch, from_onnx, from_state_dict or load, or bslite.compile"
        )
    x = in_order(spec, x)
    if backend is not None and backend not in BACKENDS:
        raise EngineError(f"backend {backend!r} is not one of {', '.join(map(repr, BACKENDS))}")
    check_threads(threads)
    if backend in (None, "cuda") and (tensors := cuda_tensors(spec, x)):
        from bslite.engines.cuda import border

        return handed(border.run(spec, tensors, layerwise=layerwise), False)
    inputs, as_torch = as_arrays(spec, x)
    if backend in ("reference", "reference64"):
        from bslite import reference

        outputs = reference.run(spec, inputs, np.float32 if backend == "reference" else np.float64)
    elif backend == "cuda":
        from bslite.engines import cuda

        outputs = cuda.run(spec, inputs, layerwise=layerwise)
    else:
        from bslite.engines import cpu

        outputs = cpu.run(spec, inputs, threads=threads, layerwise=layerwise)
        given, _ = viewed(x)
        if (kind := kind_of(given)) and all(map(_one_memory, inputs, given)):
            calls = spec.__dict__.setdefault("_calls", {})
            if len(calls) >= MOST_CALLS:
                calls.clear()
            calls[threads, layerwise, current(), kind] = cpu.Call(spec, inputs, threads, layerwise)
    return handed(outputs, as_torch)


def handed(outputs: list[Any], as_torch: bool) -> Any:
    """What `run` returns: ``outputs``, as tensors if asked for, the only one of them by itself."""
    made = [sys.modules["torch"].from_numpy(y) for y in outputs] if as_torch else outputs
    return made[0] if len(made) == 1 else made


def viewed(given: Sequence[Any]) -> tuple[list[Any], bool]:
    """``given``, with arrays of the same memory in the places of tensors, and whether there are any. All
    stay as they are if one of them has no memory that an array can be of.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(x, torch.Tensor) for x in given):
        return given if isinstance(given, list) else list(given), False
    try:
        return [x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in given], True
    except (TypeError, RuntimeError):  # one of a GPU, sparse, negated on reading, bfloat16
        return list(given), True


def _one_memory(a: Array, b: Array) -> bool:
    """Whether one array is the other, element for element."""
    return a is b or (a.size > 0 and a.ctypes.data == b.ctypes.data and a.strides == b.strides)


def in_pieces(
    model: OpenModel, given: Sequence[Any], backend: str | None, threads: int | None, layerwise: bool = False
) -> list[Any]:
    """The outputs of a model that takes several ModelSpecs to compute; torch tensors give tensors."""
    if backend is not None and backend not in BACKENDS:
        raise EngineError(f"backend {backend!r} is not one of {', '.join(map(repr, BACKENDS))}")
    check_threads(threads)
    if layerwise:
        raise EngineError(f"model {model.name!r} runs in several pieces, which do not run layer by layer")
    arrays, any_tensor = of_tensors(model.inputs, given)
    made = model.in_pieces(arrays, backend, threads)
    if any_tensor:
        torch = sys.modules["torch"]
        made = [torch.from_numpy(y) if isinstance(y, np.ndarray) and y.dtype.kind != "O" else y for y in made]
    return made


def of_tensors(ports: Sequence[Any], given: Sequence[Any]) -> tuple[list[Any], bool]:
    """``given``, with arrays in the places of torch tensors, and whether there are any.

    Raises InputError for a tensor that no array has the memory of: of a GPU, sparse, of a dtype that NumPy
    lacks.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(x, torch.Tensor) for x in given):
        return list(given), False
    made = []
    for port, x in zip(ports, given, strict=True):
        if isinstance(x, torch.Tensor):
            if x.device.type != "cpu":
                raise InputError(f"input {port.name!r} is on {x.device}; expected it on the host, by .cpu()")
            _check_tensor(port, x, torch)
            x = x.detach().resolve_neg().numpy()
        made.append(x)
    return made, True


def kind_of(given: Sequence[Any]) -> Any:
    """What a prepared call is told apart by: all that is checked of arrays. None if something is no array."""
    kind = []
    for x in given:
        if type(x) is not np.ndarray:
            return None
        kind.append((x.shape, x.strides, x.dtype, x.flags.aligned))
    return tuple(kind)


def prepared(spec: ModelSpec, given: Sequence[Any], threads: int | None, layerwise: bool = False) -> Any:
    """What computes the outputs on the CPU for inputs of a kind that ran before; None if there is none.

    It gives None itself where there is more to do than to compute (`bslite.engines.cpu.call.Call`).
    """
    calls = spec.__dict__.get("_calls")
    if calls is None or not (threads is None or type(threads) is int):
        return None
    return calls.get((threads, layerwise, current(), kind_of(given)))


def warmup(
    spec: ModelSpec | None = None,
    shapes: Sequence[Shape] | None = None,
    threads: int | None = None,
    *,
    backend: str = "cpu",
) -> list[str]:
    """Compile (or load from disk) the kernels that a model needs, or, without one, those that every model
    needs, and return their names. The backend "cuda" takes a model only.

    ``shapes`` are the input shapes to plan for; by default the example shapes of the model.

    Raises InputError if ``spec`` is no ModelSpec or ``shapes`` are none of its inputs, EngineError for a
    backend that cannot be made ready or cannot run here, and for wrong ``threads``.
    """
    check_threads(threads)
    if spec is not None:
        if not isinstance(spec, ModelSpec):
            raise InputError(f"warmup() takes a ModelSpec, got {type(spec).__name__}; call other models once")
        shapes = shapes_of("warmup", shapes)
    if backend == "cpu":
        from bslite.engines import cpu

        return cpu.warmup(spec, shapes, threads)
    if backend != "cuda":
        raise EngineError(f"warmup: backend {backend!r} is not one of 'cpu', 'cuda'")
    if spec is None:
        raise EngineError("warmup: the backend 'cuda' has kernels for a model only; give the model")
    from bslite.engines import cuda

    return cuda.warmup(spec, shapes)


ENGINES = ("_cpu_engine", "_cuda_engines", "_calls", "_streams")  # what engines keep on a spec


def memory(*specs: ModelSpec) -> dict[str, int]:
    """Bytes that the CPU engine holds for models: ``weights`` as it packed them, memory for ``values``
    between layers and for large results to come, and (about) ``plans``.

    What models share counts once; the parameters of the models themselves are not counted.
    """
    engines = [spec.__dict__["_cpu_engine"] for spec in specs if "_cpu_engine" in spec.__dict__]
    weights: dict[Any, int] = {}
    values: dict[int, int] = {}
    for engine in engines:
        values |= engine.values()
        weights |= {(id(engine.derived.shared), key): size for key, size in engine.weights().items()}
    plans = sum(engine.plans() for engine in engines)
    return {"weights": sum(weights.values()), "values": sum(values.values()), "plans": plans}


def release(spec: ModelSpec) -> None:
    """Let go of all that engines hold for ``spec``: plans, packed weights, values.

    The next run makes them anew. A run under way keeps what it uses until it ends.
    """
    for name in ENGINES:
        spec.__dict__.pop(name, None)


def settled(spec: ModelSpec | OpenModel, x: Any) -> tuple[ModelSpec, Any] | None:
    """A ModelSpec and its inputs, for the inputs ``x`` of a model that may need to know their sizes; None if
    it takes several ModelSpecs to compute it.
    """
    if not isinstance(spec, OpenModel):
        return spec, x
    found = spec.uncut(in_order(spec, x))
    if found is None:
        return None
    if found.spec is None:
        raise InputError("every output of the model is known from the sizes: nothing is computed")
    return found.spec, found.inputs


def check_threads(threads: int | None, name: str = "threads") -> None:
    """EngineError unless a number of ``name`` is None or a positive integer."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise EngineError(f"{name} must be a positive integer, got {threads!r}")


def cuda_tensors(spec: ModelSpec, x: Any) -> list[Any]:
    """The checked inputs if they are torch tensors of a GPU; an empty list if none of them is.

    Raises InputError if only some of them are, or if they are on several GPUs.
    """
    torch = sys.modules.get("torch")
    given = list(x) if isinstance(x, (list, tuple)) else [x]
    if torch is None or not any(isinstance(v, torch.Tensor) and v.device.type == "cuda" for v in given):
        return []
    places = {str(v.device) if isinstance(v, torch.Tensor) else "the host" for v in given}
    if len(places) > 1:
        raise InputError(f"model {spec.name!r}: inputs on {' and '.join(sorted(places))}; all must be on one")
    check_count(spec, given)
    sizes: dict[str, int] = {}
    for declared, tensor in zip(spec.inputs, given, strict=True):
        _check_tensor(declared, tensor, torch)
        declared.bind(tuple(tensor.shape), sizes)
    return given


def on_host(x: Any) -> Any:
    """``x``, its torch tensors of a GPU copied to the host."""
    torch = sys.modules.get("torch")
    if isinstance(x, (list, tuple)):
        return [on_host(v) for v in x]
    return x.cpu() if torch is not None and isinstance(x, torch.Tensor) else x


def check_count(spec: ModelSpec, given: list[Any]) -> None:
    """InputError unless there are as many inputs as the model takes."""
    if len(given) != len(spec.inputs):
        raise InputError(f"model {spec.name!r} takes {len(spec.inputs)} input(s), got {len(given)}")


def _check_tensor(declared: Any, value: Any, torch: Any) -> None:
    """InputError unless a tensor is dense and of the dtype the model takes."""
    if value.layout != torch.strided:
        raise InputError(f"input {declared.name!r} is a {value.layout} tensor; expected a dense one")
    if str(value.dtype) != f"torch.{declared.dtype}":
        raise InputError(
            f"input {declared.name!r} is {value.dtype}, expected torch.{declared.dtype}; bslite does not cast"
        )


def as_arrays(spec: ModelSpec, x: Any) -> tuple[list[Array], bool]:
    """The inputs as checked arrays, copied only where their memory cannot be walked; was any torch's?"""
    given = list(x) if isinstance(x, (list, tuple)) else [x]
    check_count(spec, given)
    torch = sys.modules.get("torch")
    as_torch = torch is not None and any(isinstance(v, torch.Tensor) for v in given)
    arrays = [as_array(declared, v, torch) for declared, v in zip(spec.inputs, given, strict=True)]
    sizes: dict[str, int] = {}
    for declared, array in zip(spec.inputs, arrays, strict=True):
        declared.bind(array.shape, sizes)
    return arrays, as_torch


def as_array(declared: Input, value: Any, torch: Any) -> Array:
    """One input: type and dtype checked, strides made positive and whole."""
    what = f"input {declared.name!r}"
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise InputError(
                f"{what} is on {value.device}; this engine takes CPU tensors, move it with .cpu()"
            )
        _check_tensor(declared, value, torch)
        value = value.detach().resolve_neg().numpy()
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise InputError(
            f"{what} is a {type(value).__name__}; expected a numpy array or torch tensor of {declared.dtype}"
        )
    if value.dtype != np.dtype(declared.dtype):
        raise InputError(f"{what} is {value.dtype}, expected {declared.dtype}; bslite does not cast")
    walkable = all(s > 0 and s % value.itemsize == 0 for s in value.strides)
    spread = sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True))
    if not (walkable and value.size and spread < 2 * value.nbytes and value.flags.aligned):
        # Negative, zero, odd or far-apart strides: a dense copy is cheaper.
        value = np.ascontiguousarray(value)
    return value
