"""`InferenceSession`: a model ready to run, by onnxruntime's names."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bslite.compiled.model import CompiledModel
from bslite.compiled.runners.onnx import OnnxRunner
from bslite.compiled.runners.runner import Options
from bslite.errors import InputError, UnsupportedError
from bslite.frontends.onnx.file import read_model
from bslite.frontends.onnx.lacking import check_operators
from bslite.onnx.host import HOST
from bslite.onnxruntime.binding import IOBinding, OrtValue
from bslite.onnxruntime.environment import PROVIDERS
from bslite.onnxruntime.feeds import arrays
from bslite.onnxruntime.metadata import ModelMetadata, NodeArg
from bslite.onnxruntime.options import RunOptions, SessionOptions

NO_VERSION = 2**63 - 1  # what onnxruntime says of a file that names none


class InferenceSession:
    """An ONNX model ready to run.

    ``path_or_bytes``: the file, or its bytes. ``sess_options``: the number of threads and fixed sizes count.
    ``providers``: those that bslite does not have are passed over, as onnxruntime does where one is missing.

    Raises FileError for a file that cannot be read, SpecError for a model that is wrong, UnsupportedError for
    operators that bslite does not have in any form. Forms that it does not have are known when a model runs.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._options = self._sess_options = sess_options or SessionOptions()
        # packages read where the model came from
        self._model_path = None if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes)
        self._model_bytes = path_or_bytes if isinstance(path_or_bytes, bytes) else None
        source = read_model(path_or_bytes)
        check_operators(source, HOST)
        proto = source.model
        options = Options("cpu", self._options.threads)
        self._runner = OnnxRunner(source, options)
        self._model = CompiledModel(self._runner, options)
        sizes = self._options.sizes
        types = {v.name: v.type for v in (*proto.graph.input, *proto.graph.output)}
        self._inputs, self._outputs, self._defaults = (
            [NodeArg.of(p, types[p.name]) for p in ports]
            for ports in (self._model.inputs, self._model.outputs, self._runner.overridable)
        )
        for arg in (*self._inputs, *self._defaults):
            arg.shape[:] = [sizes.get(d, d) if isinstance(d, str) else d for d in arg.shape]
        self._places = {o.name: i for i, o in enumerate(self._outputs)}
        self._meta = ModelMetadata(
            proto.producer_name,
            proto.graph.name,
            proto.domain,
            proto.doc_string,
            proto.graph.doc_string,
            proto.model_version if proto.HasField("model_version") else NO_VERSION,
            {p.key: p.value for p in proto.metadata_props},
        )

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs named, all of them for None or an empty list, in that order, for arrays by name.

        A list of numbers, nested as the input has axes, becomes an array of the input's dtype.

        InputError for an input that is missing, unknown or unfit, and for a name that is no output.
        """
        if (again := self._again(output_names, input_feed)) is not None:
            return again
        known = [o.name for o in self._outputs]
        wanted = list(output_names or known)
        if unknown := [n for n in wanted if n not in known]:
            raise InputError(
                f"there is no output {', '.join(map(repr, unknown))}; there are {', '.join(known)}"
            )
        takes = [*self._inputs, *self._defaults]
        feed = arrays(takes, input_feed)
        for arg in takes:
            given = getattr(feed.get(arg.name), "shape", None)
            for axis, (want, got) in enumerate(zip(arg.shape, given or (), strict=False)):
                if isinstance(want, int) and want != got:
                    raise InputError(
                        f"input {arg.name!r}: got {list(given or ())}, expected {arg.shape} (axis {axis})"
                    )
        made = self._model(feed)
        return [made[name] for name in wanted]

    def _again(self, output_names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any] | None:
        """What `run` returns for inputs of kinds that it has run before; None if there is more to do."""
        if type(feed) is not dict or len(feed) != len(self._inputs):
            return None
        if output_names and not self._places.keys() >= set(output_names):
            return None
        made = self._runner.model.again([feed.get(arg.name) for arg in self._inputs])
        return [made[self._places[name]] for name in output_names] if made and output_names else made

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], Any],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """`run` in a thread of its own, which calls ``callback(results, user_data, "")``, or with no results
        and what is wrong.
        """

        def work() -> None:
            try:
                made = self.run(output_names, input_feed)
            except Exception as e:  # whoever waits is to hear of it
                callback([], user_data, str(e))
            else:
                callback(made, user_data, "")

        threading.Thread(target=work, name="bslite-run-async").start()

    def get_inputs(self) -> list[NodeArg]:
        """What `run` takes."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """What `run` returns."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """What `run` takes besides, with the default that the file has."""
        return self._defaults

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself."""
        return self._meta

    def get_session_options(self) -> SessionOptions:
        """The options given."""
        return self._options

    def get_providers(self) -> list[str]:
        """Where it runs."""
        return list(PROVIDERS)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """No options."""
        return {name: {} for name in PROVIDERS}

    def set_providers(self, providers: Sequence[Any] | None = None, *options: Any) -> None:
        """Taken for programs that call it; the session stays on the CPU."""

    def disable_fallback(self) -> None:
        """Taken for programs that call it; there is no fallback."""

    def enable_fallback(self) -> None:
        """Taken for programs that call it; there is no fallback."""

    def end_profiling(self) -> str:
        """The empty string, as of a session that was not asked to profile. UnsupportedError if it was."""
        if self._options.enable_profiling:
            raise UnsupportedError(
                "no profile in onnxruntime's form; bslite.explain tells where the time goes"
            )
        return ""

    def io_binding(self) -> IOBinding:
        """Bindings for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with values in and out."""
        return [OrtValue(y) for y in self.run(output_names, input_dict_ort_values)]

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Compute what is bound."""
        iobinding.run(self)
