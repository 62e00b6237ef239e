"""`OnnxModel`: an ONNX model that runs as it is, its open sizes and needed values settled by each call."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite import api
from bslite.errors import BsliteError, InputError, UnsupportedError
from bslite.frontends.onnx.file import read_model
from bslite.frontends.onnx.inputs import check_names, examples, labelled
from bslite.frontends.onnx.read import NotConverted
from bslite.frontends.onnx.tensors import check_external, dtype_name
from bslite.onnx.border import border_of
from bslite.onnx.mixed import MixedRep
from bslite.onnx.running import Options
from bslite.onnx.watch import watched
from bslite.spec import Array
from bslite.spec.open import OpenModel, Ran, Settled
from bslite.spec.ports import Port


class OnnxModel(OpenModel):
    """The model in a file, in bytes or a ModelProto (see `bslite.from_onnx`), ready to run at any size.

    Sizes that the file leaves open are free in one ModelSpec where that is possible. Where it is not, there
    is one ModelSpec per size, made at its first use from the parsed file, without compilation, and kept among
    the recent ones (see `bslite.cache.by_operations`). All share parameters and packed weights; `specialised`
    shows them.
    `bslite.run`, `bslite.compile`, `bslite.verify` and `bslite.explain` take it in the place of a ModelSpec.
    """

    divides = True

    def __init__(
        self, model: Any, backend: str = "cpu", threads: int | None = None, name: str | None = None
    ) -> None:
        self.source = read_model(model)
        if self.source.folder is not None:
            check_external(self.source.model.graph, self.source.folder)
        self.name = name or self.source.name
        graph = self.source.model.graph
        stored = {t.name for t in graph.initializer}
        self.inputs = tuple(port_of(v) for v in graph.input if v.name not in stored)
        self.outputs = tuple(port_of(v) for v in graph.output)
        self._border, self._exact = border_of(self.source), backend == "reference64"
        self._rep = MixedRep(self._border.source, Options(backend, threads))
        self._others: dict[Options, OnnxModel] = {}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name for one array per input."""
        taken = self._border.enter(inputs)
        made = self._rep.run(taken)
        self._rep.running.met.note([taken[name] for name in self._rep.names])
        return self._border.leave(dict(zip([o.name for o in self.outputs], made, strict=True)), self._exact)

    def again(self, given: Sequence[Any]) -> list[Array] | None:
        """The outputs in order for one array per input, of kinds that it has run before; None if there is
        more to do, as `run` does it.
        """
        return None if self._border.takes or self._border.gives else self._rep.running.again(given)

    def settle(self, given: Sequence[Any]) -> Settled:
        """See `OpenModel`."""
        if self._border.gives:
            raise UnsupportedError(
                f"model {self.name!r}: outputs {', '.join(self._border.gives)} are of types that bslite has "
                "at the border only: no ModelSpec computes it"
            )
        inputs = self._border.enter(self._by_name(given))
        return self._rep.running.whole().specialised(inputs).settled(inputs)

    def uncut(self, given: Sequence[Any]) -> Settled | None:
        """See `OpenModel`."""
        if any(model._rep.running.cut for model in (self, *self._others.values())):
            self._by_name(given)  # refuses what is no input of its
            return None
        try:
            return self.settle(given)
        except UnsupportedError:  # NotConverted, too: what cannot run in pieces either says so when it runs
            return None

    def in_pieces(
        self, given: Sequence[Any], backend: str | None, threads: int | None, ran: list[Ran] | None = None
    ) -> list[Any]:
        """See `OpenModel`. ``backend`` and ``threads`` where they are not None, else those of the model."""
        own = self._rep.running.options
        model = self._like(Options(backend or own.backend, threads or own.threads))
        inputs = self._by_name(given)
        if ran is None:
            return list(model.run(inputs).values())
        with watched() as watch:
            made = model.run(inputs)
        ran += watch.ran
        return list(made.values())

    def example(self, given: Mapping[str, Any], batch: int | None = None, seed: int = 0) -> list[Any]:
        """See `OpenModel`."""
        check_names(self.source, [i.name for i in self.inputs], given)
        arrays = {n: x for n, x in given.items() if not isinstance(x, tuple)}
        shapes = {n: tuple(getattr(x, "shape", x)) for n, x in given.items() if not isinstance(x, list)}
        if len(arrays) == len(self.inputs):
            return [arrays[i.name] for i in self.inputs]
        drawn = [i for i in self.inputs if i.name not in arrays or i.name in shapes]
        declared = [labelled(i.name, i.shape, i.dtype) for i in drawn]
        wrong: BsliteError | None = None
        for tried in examples(declared, shapes, batch or 1):
            rng = np.random.default_rng(seed)
            made = {i.name: i.draw(rng, s) for i, s in zip(drawn, tried, strict=True) if i.name not in arrays}
            each = [arrays[i.name] if i.name in arrays else made[i.name] for i in self.inputs]
            try:
                if self.uncut(each) is None:
                    self.in_pieces(each, None, None)
            except UnsupportedError:
                raise
            except BsliteError as e:
                wrong = wrong or e
            else:
                return each
        raise InputError(
            f"model {self.name!r}: none of the inputs tried fits it; give some, or their shapes: {wrong}"
        )

    def cures(self, error: NotConverted) -> bool:
        """Whether the model runs in pieces, so far as is known, where making a ModelSpec raises ``error``."""
        return self._rep.running.cures(error)

    def _like(self, options: Options) -> "OnnxModel":
        """This model with other options."""
        if options == self._rep.running.options:
            return self
        if options not in self._others:
            self._others[options] = OnnxModel(self.source, options.backend, options.threads, self.name)
        return self._others[options]

    def _by_name(self, given: Sequence[Any]) -> dict[str, Any]:
        names = [i.name for i in self.inputs]
        if len(given) != len(names):
            raise InputError(f"model {self.name!r} takes {len(names)} arrays, {names}; got {len(given)}")
        for port, x in zip(self.inputs, given, strict=True):
            if not hasattr(x, "shape") and port.dtype not in ("sequence_type", "optional_type"):
                raise InputError(
                    f"input {port.name!r} is a {type(x).__name__}; expected an array or a tensor"
                )
        return dict(zip(names, given, strict=True))

    @property
    def specialised(self) -> list[str]:
        """The inputs of each model that is kept, sizes that are free by name; the most recent one last."""
        return [str(s) for s in self._rep.kept()]

    @property
    def pieces(self) -> list[str]:
        """How it runs, a line for each piece in order: what the engine computes, and every node that runs by
        itself, with the reason. Complete after the first call, for what that call took.
        """
        return list(self._rep.running.said())

    def specs(self) -> list[Any]:
        """The models that it was specialised to."""
        return [s.spec for s in self._rep.kept() if s.spec is not None]

    def memory(self) -> dict[str, int]:
        """Bytes held: of ``weights``, packed for the engine, ``values`` between layers, and ``plans``."""
        return api.memory(*self.specs())

    def __repr__(self) -> str:
        ports = ", ".join(map(str, self.inputs))
        return f"<OnnxModel {self.name!r} ({ports}): specialised to {len(self._rep.kept())} kinds of sizes>"

    def close(self) -> None:
        """Let go of plans, packed weights and values."""
        for spec in self.specs():
            api.release(spec)
        self._rep.forget()
        for other in self._others.values():
            other.close()
        self._others.clear()


def port_of(value: Any) -> Port:
    """An input or output as the file declares it."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(value.name, None, str(kind))
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type) or "unknown"
    if not tensor.HasField("shape"):
        return Port(value.name, None, dtype)
    sizes: list[int | str | None] = []
    for d in tensor.shape.dim:
        known = d.HasField("dim_value") and d.dim_value > 0
        sizes.append(d.dim_value if known else d.dim_param or None)
    return Port(value.name, tuple(sizes), dtype)
