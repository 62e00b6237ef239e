"""`compile`, and the `CompiledModel` that it returns."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from bslite.api import BACKENDS, check_threads
from bslite.arithmetic import Precision, current, precision_of
from bslite.arithmetic import precision as least
from bslite.compiled.outputs import Outputs
from bslite.compiled.runners.runner import Options, Runner
from bslite.compiled.streams import Streams
from bslite.errors import EngineError, InputError, UnsupportedError
from bslite.frontends.onnx.file import Source
from bslite.spec import ModelSpec, load
from bslite.spec.open import OpenModel
from bslite.spec.ports import Port


class CompiledModel:
    """A model ready to run: ``m(x)``, ``m(x, mask)``, ``m(input=x)`` or ``m({"input": x})``.

    Inputs are NumPy arrays or torch tensors in the layout that the model declares; tensors in give tensors
    out. A call returns `Outputs`: results by name, place or attribute. Sizes that the model leaves open may
    differ from call to call: a new size is planned for on its first use and kept among the recent ones, which
    share the packed weights. Several threads may call one model. `submit` and `map` run it on threads of its
    own, as many as it has streams. A model is also a context manager that closes it.
    """

    def __init__(self, runner: Runner, options: Options, streams: Streams | None = None) -> None:
        self._runner: Runner | None = runner
        self._options = options
        self._streams, self._own = streams, streams or Streams(1)
        self.name = runner.name
        if options.device == "cpu":
            from bslite.engines import cpu  # noqa: F401 (takes a second, which no call need wait for)

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Name, sizes and dtype of each input, in order."""
        return self._open().inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Name, sizes and dtype of each output, in order. A torch module's are known after its first call."""
        return self._open().outputs

    @property
    def device(self) -> str:
        """Where it runs, as `compile` was told."""
        return self._options.device

    @property
    def threads(self) -> int | None:
        """The number of threads asked for; None for as many as `bslite.run` takes."""
        return self._options.threads

    @property
    def precision(self) -> Precision:
        """The least accuracy of products that it was compiled for."""
        return self._options.precision

    @property
    def streams(self) -> int | None:
        """The number of runs at a time; None where only the cores bound it."""
        return None if self._streams is None else self._streams.count

    @property
    def pieces(self) -> list[str]:
        """Where it runs, a line for each piece: what the engine computes at once, and every node that runs by
        itself, in NumPy or as control flow, with the reason. Complete after the first call.
        """
        return self._open().pieces()

    @property
    def _bslite_model(self) -> Any:
        """For `bslite.spec.open.behind`."""
        return self._open().model

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held beyond the model's own parameters: packed ``weights``, memory for ``values`` between
        layers, and (about) ``plans`` for the sizes met.
        """
        return self._open().memory()

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        """The model's results. InputError names an input that is missing, unknown or unfit."""
        runner = self._runner
        if runner is None:
            runner = self._open()
        if self._streams is None:
            return self._call(runner, args, kwargs)
        return self._streams.run(lambda: self._call(runner, args, kwargs))

    def submit(self, *args: Any, **kwargs: Any) -> "Future[Outputs]":
        """As a call, on a thread of one of the streams. ``.result()`` of what it returns waits for the
        results, or raises what the call raised. Don't change the inputs before.
        """
        runner = self._open()
        return self._own.submit(lambda: self._call(runner, args, kwargs))

    def map(self, inputs: Iterable[Any]) -> Iterator[Outputs]:
        """The results for each of ``inputs`` (an array, or a list or dict of them), in order, from all
        streams. Takes few more of them than there are streams before it yields the first results.
        """
        runner = self._open()
        return self._own.map(lambda x: self._call(runner, [x], {}), inputs)

    def close(self) -> None:
        """Wait for what was submitted, and let go of plans, packed weights and values. Calls after that raise
        EngineError.
        """
        runner, self._runner = self._runner, None
        if runner is not None:
            self._own.close()
            runner.close()

    def _call(self, runner: Runner, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
        if self._options.precision is current():
            return runner.call(args, kwargs)
        with least(self._options.precision):
            return runner.call(args, kwargs)

    def _open(self) -> Runner:
        if self._runner is None:
            raise EngineError(f"model {self.name!r} is closed")
        return self._runner

    def __enter__(self) -> "CompiledModel":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._runner is None:
            return f"<CompiledModel {self.name!r}: closed>"
        ports = [", ".join(map(str, p)) or "?" for p in (self.inputs, self.outputs)]
        return f"<CompiledModel {self.name!r} on {self.device}: ({ports[0]}) -> ({ports[1]})>"


def compile(
    model: Any,
    *,
    device: str = "cpu",
    threads: int | None = None,
    streams: int | None = None,
    pin: bool = False,
    precision: str | None = None,
) -> CompiledModel:
    """``model`` ready to run. Nothing is computed yet; kernels are compiled once per machine, not per model.

    ``model``: a `ModelSpec`; the path of an ONNX file or of one that `bslite.save` wrote; an ONNX model's
    bytes or ``ModelProto``; what `bslite.from_onnx` returned; a torch module in eval mode. An ONNX model runs
    as it is: sizes that it leaves open are settled by the inputs of each call. A torch module is traced at
    its first call; all of it runs in bslite, or UnsupportedError lists what cannot.

    ``device``: "cpu", "cuda", or as for `bslite.run` "reference", the plain NumPy oracle, and "reference64",
    the same in float64. ``threads`` as for `bslite.run`.

    ``streams``: so many calls run side by side, the others wait for their turn. Each has ``threads`` threads,
    by default an equal part of the cores. Fewer threads for more calls answer more of them a second, and each
    of them later. The bits are the same. ``pin``: each stream keeps to cores of its own, of one NUMA node
    where a node has enough of them; calls then pass to threads of the streams.

    ``precision``: the least accuracy of products. "float32" promises errors no larger than those of float32
    arithmetic, "ieee" float32 multiply-adds only; see `bslite.arithmetic.Precision`. By default what
    `bslite.precision` says now, else "float32".

    Raises FileError for a file that cannot be read, SpecError for a model that is wrong, InputError if
    ``model`` is none of these, EngineError for a device, precision or number of threads that is not there.
    """
    if device not in BACKENDS:
        raise EngineError(f"device {device!r} is not one of {', '.join(map(repr, BACKENDS))}")
    check_threads(threads)
    if streams is not None or pin:
        threads, made = _streams(device, threads, streams, pin)
    else:
        made = None
    options = Options(device, threads, current() if precision is None else precision_of(precision))
    return CompiledModel(_runner(model, options), options, made)


def _streams(device: str, threads: int | None, count: int | None, pin: bool) -> tuple[int, Streams]:
    """The threads of each stream, and the streams."""
    check_threads(count, "streams")
    if device != "cpu":
        raise EngineError(f"streams= and pin= divide the cores of a CPU, not of {device!r}")
    from bslite.engines.cpu.places import places
    from bslite.engines.cpu.threads import default_threads

    count = count or 1
    threads = threads or max(1, default_threads() // count)
    return threads, Streams(count, places(count, threads) if pin else ())


def _is_saved(path: Path) -> bool:
    """Whether a file is one that `bslite.save` writes, whatever it is called: a length, then JSON."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                if file.read(9)[7:] == b"\0{":
                    return True
    except (OSError, ValueError):  # who reads it says why
        pass
    return path.suffix.lower() == ".safetensors"


def _runner(model: Any, options: Options) -> Runner:
    if isinstance(model, (str, os.PathLike)) and _is_saved(Path(model)):
        model = load(model)
    if isinstance(model, ModelSpec):
        from bslite.compiled.runners.spec import SpecRunner

        return SpecRunner(model, options)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        if options.device != "cpu":
            raise UnsupportedError(
                f"a torch module runs where its parameters are; move it, or compile "
                f"bslite.from_torch(module, example) with device={options.device!r}"
            )
        from bslite.compiled.runners.module import ModuleRunner

        return ModuleRunner(model, options)
    known = isinstance(model, (bytes, bytearray, memoryview, Source, OpenModel))
    is_onnx = known or type(model).__name__ == "ModelProto"
    if not is_onnx and not isinstance(model, (str, os.PathLike)):
        raise InputError(
            f"compile() takes a ModelSpec, the path of a model file, an ONNX model or a torch module, "
            f"got {type(model).__name__}"
        )
    from bslite.compiled.runners.onnx import OnnxRunner

    return OnnxRunner(model, options)
