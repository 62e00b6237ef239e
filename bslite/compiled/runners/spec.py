"""A ModelSpec as a compiled model runs it."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite import api
from bslite.compiled.arguments import ordered
from bslite.compiled.outputs import Outputs
from bslite.compiled.runners.runner import Options
from bslite.errors import BsliteError
from bslite.frontends.torch.model import TorchModel
from bslite.spec import ModelSpec
from bslite.spec.ports import Port


class SpecRunner:
    """Runs ``spec`` by a copy of its own, so that closing it leaves alone what `bslite.run` keeps."""

    def __init__(self, spec: ModelSpec, options: Options) -> None:
        self.name, self.options = spec.name, options
        self.model = spec.copy() if isinstance(spec, TorchModel) else spec.replace()
        shapes = spec.open_shapes if isinstance(spec, TorchModel) else [i.shape for i in spec.inputs]
        self.inputs = tuple(
            Port(i.name, shape, i.dtype) for i, shape in zip(spec.inputs, shapes, strict=True)
        )
        self.outputs = output_ports(spec)
        self._takes, self._gives = [i.name for i in self.inputs], [o.name for o in self.outputs]

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outputs:
        given = ordered(self.name, self._takes, args, kwargs)
        made = api.run(self.model, given, backend=self.options.device, threads=self.options.threads)
        return Outputs.of(self._gives, made if isinstance(made, list) else [made])

    def pieces(self) -> list[str]:
        return [f"engine: {len(self.model.nodes)} nodes"]

    def memory(self) -> dict[str, int]:
        return api.memory(*self._specs())

    def close(self) -> None:
        for spec in self._specs():
            api.release(spec)

    def _specs(self) -> list[ModelSpec]:
        return self.model.specs() if isinstance(self.model, TorchModel) else [self.model]


def output_ports(spec: ModelSpec) -> tuple[Port, ...]:
    """Names, sizes and dtypes of the outputs; a size that always equals a free one has its name, one that
    differs from call to call is None.
    """
    if isinstance(spec, TorchModel):
        base, other = output_ports(spec.base), spec.another()
        pairs = zip(base, base if other is None else output_ports(other), strict=True)
        return tuple(Port(a.name, _alike(a, b), a.dtype) for a, b in pairs)
    free = sorted({d for i in spec.inputs for d in i.shape if isinstance(d, str)})
    known = {d: n for i in spec.inputs for d, n in zip(i.shape, i.example, strict=True) if isinstance(d, str)}
    probes = []
    for sizes in [known, *({**known, d: known[d] * (2 + k)} for k, d in enumerate(free))]:
        shapes = [tuple(sizes[d] if isinstance(d, str) else d for d in i.shape) for i in spec.inputs]
        try:
            probes.append((sizes, spec.infer_shapes(shapes)))
        except BsliteError:  # a size that the model does not take tells nothing of the others
            continue

    def size(name: str, axis: int) -> int | str | None:
        seen = [(sizes, made[name][axis]) for sizes, made in probes]
        if len({n for _, n in seen}) == 1 and len(probes) == 1 + len(free):
            return seen[0][1]
        return next((d for d in free if all(n == sizes[d] for sizes, n in seen)), None)

    return tuple(
        Port(label, tuple(size(name, axis) for axis in range(len(probes[0][1][name]))), spec.dtypes[name])
        for label, name in zip(spec.labels, spec.outputs, strict=True)
    )


def _alike(a: Port, b: Port) -> tuple[int | str | None, ...]:
    """The sizes that two ports share, None for the others."""
    return tuple(n if n == m else None for n, m in zip(a.shape or (), b.shape or (), strict=True))
