"""The parts of a convolution that both targets need: its filters, and the residual that its store adds."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bslite.kernels.contracts.cpu.tiles import Reads
from bslite.passes import Layer
from bslite.passes.families import TRANSPOSED
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import View
from bslite.plan.core.windows import shapes_of_params


class Filters(NamedTuple):
    """A convolution's weights: inputs and outputs of a group, and the recipe that packs them."""

    groups: int
    group_depth: int
    group_channels: int
    recipe: str = ""  # added to the names of the recipes
    how: Mapping[str, Any] = {}
    weight: View | None = None  # where it is a value
    dots: bool = False  # whether inputs are cells of two bfloat16, of which ``group_depth`` counts
    reads: Reads = Reads.FLOAT32  # what inputs of tiles of bfloat16 are, on the CPU
    in_registers: bool = False  # whether a register of channels holds whole groups, on the CPU

    @property
    def depthwise(self) -> bool:
        """Whether each channel has one filter."""
        return self.groups > 1 and self.group_depth == self.group_channels == 1


def filters_of(b: AnyBuilder, layer: Layer) -> Filters:
    """The filters of a convolution ``[K, C/groups, ...]``, or of a transposed one ``[C, K/groups, ...]``."""
    outer, inner, *_ = shapes_of_params(b.spec, layer.node, b.shapes)["weight"]
    groups = layer.node.attrs["groups"]
    if layer.node.declaration.plain in TRANSPOSED:
        return Filters(groups, outer // groups, inner, "transposed_", {"all_groups": groups})
    return Filters(groups, inner, outer // groups)


def residual_of(b: AnyBuilder, layer: Layer, exact: bool = False, inner: int | None = None) -> View | None:
    """The value that the layer's store adds, with axis ``inner`` contiguous (default: that of the layer's own
    value); ``exact``: see `Builder.read`.
    """
    if layer.residual is None:
        return None
    view = b.like(b.values[layer.residual], layer.residual, layer.name)
    return b.arranged(view, b.inner(layer.name) if inner is None else inner, exact=exact)
