"""Convolutions and linear layers whose weights are values: inputs of a model, or made by its nodes."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from bslite.ops.contraction import Linear
from bslite.ops.conv import Conv
from bslite.ops.conv_transpose import ConvTranspose
from bslite.ops.core import REGISTRY, Attrs, Case, Kind, Op, ParamShapes, Shape, declare
from bslite.ops.values import Applied, Gradients, Value


class Given(Op):
    """Base of ops whose parameters are inputs, after the inputs of ``of``: ``weight``, then ``bias``."""

    kind = Kind.CONTRACTION
    arity = (2, 3)
    of: ClassVar[Op]

    @property
    def plain(self) -> str:
        return self.of.name

    def given(self, inputs: int) -> tuple[str, ...]:
        return tuple(self.of.params)[: inputs - self.of.arity[1]]

    def _parted(self, ins: Sequence[Shape]) -> tuple[Sequence[Shape], ParamShapes]:
        own = self.of.arity[1]
        return ins[:own], dict(zip(self.given(len(ins)), ins[own:], strict=True))

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        return self.of.shape(*self._parted(ins), attrs)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        own, weights = self._parted(ins)
        return self.of.flops(own, out, weights, attrs)

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return self.of.keeps_images_apart(ranks, attrs)

    def share(self, inputs: int) -> range:
        return range(self.of.arity[1], inputs)

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        own = self.of.arity[1]
        roles = self.given(len(at.inputs))
        values = dict(zip(roles, at.inputs[own:], strict=True))
        applied = dataclasses.replace(at, inputs=at.inputs[:own], params=values)
        places: dict[int | str, int] = {role: own + i for i, role in enumerate(roles)}
        made = self.of.vjp(applied, grad)
        return {places.get(k, k): value for k, value in made.items() if isinstance(k, int) or k in places}

    def cases(self) -> Sequence[Case]:
        return [
            Case(
                c.label,
                [*c.inputs, *(c.params[role] for role in self.of.params if role in c.params)],
                {},
                c.attrs,
            )
            for c in self.of.cases()
        ]


def _declare(op: Op) -> None:
    doc = (
        f"`{op.name}` whose weight, and bias if there is one, are inputs 1 and 2: values, packed at each run."
    )
    declare(Given, f"{op.name}_given", doc, torch=op.torch_name, of=op, attrs=op.attrs)


for _op in [op for op in REGISTRY.values() if isinstance(op, (Conv, ConvTranspose, Linear))]:
    _declare(_op)
