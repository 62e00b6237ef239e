"""Convolutions that are best computed plane by plane: alone, or as image filters of few channels.

What the model is given, and what it returns, is row-major. Convolutions of images, channels last, turn it
first, and their results in the end; where a sum has few terms that takes longer than the sums, and of few
channels most lanes of a register are empty. Whole regions are priced both ways: convolutions and the ops that
join them.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from bslite.ops import Kind, Shape
from bslite.spec import ModelSpec, Node

CONVS = ("conv1d", "conv2d", "conv3d")
#: Movements that take planes as they lie.
MOVES = frozenset(("concat", "pad", "slice", "expand", "dropout"))
#: Ops that do if there are at most so many channels (`layouts.py`).
OF_FEW, FEW = frozenset(("max_pool2d", "avg_pool2d", "upsample", "resize")), 4
CLEARLY = 1.1  # how many times as long a region must take as images


class Cycles:
    """Prices in cycles of one core, fitted to 1,100 random layers on a Zen 4; those of moves are for each
    register.
    """

    TURN = 12.0  # a value there or back
    TURN_FAR = 19.0  # what that takes more beyond `FAR` bytes
    RESULT = 4.9  # of an image besides its sums
    PLANE_TERM = 1.14  # a multiply-add; of images it takes a cycle, or two by taps
    GATHER, GATHER_LINE = 8.3, 5.9  # a register and a line that are copied before planes are multiplied
    FINISH, FINISH_LINE = 9.8, 3.2
    PLANE = 186.0


FAR = 8 << 20  # bytes of an image there and back
WIDE = 64  # channels whose windows, with several taps, are too much to gather


class Sizes(NamedTuple):
    """Of one convolution: groups, inputs and outputs of a group, terms and phases of a sum, results."""

    groups: int
    inputs: int
    outputs: int
    taps: int
    phases: int
    by_taps: bool  # whether windows of channels-last images share no elements in registers
    images: int
    lines: int  # of a plane, or all of a volume
    pixels: int


class Region(NamedTuple):
    """Convolutions that are joined, and the values at the ends of what joins them, which are row-major."""

    convs: list[Node]
    first: list[str]
    last: list[str]


def open_regions(
    spec: ModelSpec, shapes: Mapping[str, Shape], linked: Mapping[str, set[str]], fixed: Collection[str]
) -> list[Region]:
    """The regions in which all values may be planes. The ranks alone of ``shapes`` count.

    ``linked``: the values whose axes lie as each one's do. ``fixed``: values that lie as images do.
    """
    if not any(_has_kernel(node) for node in spec.nodes):
        return []
    region = _regions(spec, linked)
    closed = {region[name] for name in fixed if name in region}
    found: dict[str, Region] = {}
    first = [given.name for given in spec.inputs]
    for node in spec.nodes:
        if _has_kernel(node):
            found.setdefault(region[node.name], Region([], [], [])).convs.append(node)
        elif not _takes_planes(node, shapes):
            closed.update(region[name] for name in (*node.inputs, node.name) if name in region)
        elif node.op == "reshape":
            first.append(node.name)
    for root, at in found.items():
        at.first.extend(name for name in first if region.get(name) == root)
        at.last.extend(name for name in spec.outputs if region.get(name) == root)
    return [at for root, at in found.items() if root not in closed]


def plane_convs(
    regions: Iterable[Region], spec: ModelSpec, shapes: Mapping[str, Shape], lanes: int,
    stays: Callable[[Node], bool],
) -> frozenset[str]:  # fmt: skip
    """The convolutions of the regions that take clearly less time plane by plane, but for regions with one
    that ``stays`` one of images.
    """
    found: set[str] = set()
    for region in regions:
        sizes = [_sizes(node, spec, shapes) for node in region.convs]
        as_images = sum(_image_cycles(s, lanes) for s in sizes)
        ends = sum(math.prod(shapes[name]) for name in (*region.first, *region.last))
        far = max(0.0, ends - shapes[region.convs[0].name][0] * FAR / 4)
        as_images += (Cycles.TURN * ends + Cycles.TURN_FAR * far) / lanes
        quicker = as_images > CLEARLY * sum(_plane_cycles(s, lanes) for s in sizes)
        if quicker and not any(map(stays, region.convs)):
            found.update(node.name for node in region.convs)
    return frozenset(found)


def _has_kernel(node: Node) -> bool:
    """Whether there is a kernel that takes planes: its weights are constants."""
    return node.op in CONVS and not node.given


def _regions(spec: ModelSpec, linked: Mapping[str, set[str]]) -> dict[str, str]:
    """For each value that a convolution, or a link, joins to others: one of the values of its region."""
    joined = {name: set(names) for name, names in linked.items()}
    for node in spec.nodes:
        if _has_kernel(node):
            joined.setdefault(node.name, set()).add(node.inputs[0])
            joined.setdefault(node.inputs[0], set()).add(node.name)
    region: dict[str, str] = {}
    for first in joined:
        waiting = [first] if first not in region else []
        while waiting:
            name = waiting.pop()
            if name not in region:
                region[name] = first
                waiting.extend(joined.get(name, ()))
    return region


def _takes_planes(node: Node, shapes: Mapping[str, Shape]) -> bool:
    """Whether a node that is no convolution may read and make planes as they lie."""
    op, kind = node.declaration.plain, node.declaration.kind
    if op in MOVES or kind in (Kind.POINTWISE, Kind.CHANNEL, Kind.SOURCE):
        return True
    if op in OF_FEW:
        return shapes[node.name][1] <= FEW
    if op == "reshape":
        return min(len(shapes[node.name]), len(shapes[node.inputs[0]])) > 3
    return kind is Kind.REDUCTION and op not in ("layer_norm", "rms_norm")


def _sizes(node: Node, spec: ModelSpec, shapes: Mapping[str, Shape]) -> Sizes:
    outer, inputs, *kernel = spec.param_shapes(node)["weight"]
    n, _, *made = shapes[node.name]
    groups, strides = node.attrs["groups"], node.attrs["stride"]
    whole = math.prod(kernel) == math.prod(strides) == 1 and not any(node.attrs["padding"])
    lines, pixels = (1, math.prod(made)) if whole else (math.prod(made[:-1]), made[-1])
    phases = math.prod(map(min, kernel[-2:], strides[-2:]))
    by_taps = max(node.attrs["dilation"]) > 1 or max(strides) > 2
    return Sizes(groups, inputs, outer // groups, math.prod(kernel), phases, by_taps, n, lines, pixels)


def _image_cycles(s: Sizes, lanes: int) -> float:
    """Of a convolution, channels last."""
    alone = s.inputs == 1 or s.inputs <= s.outputs <= lanes // 2
    packed = s.groups > 1 and alone
    registers = -(-s.groups * s.outputs // lanes) if packed else s.groups * -(-s.outputs // lanes)
    terms = s.inputs * s.taps * (2 if packed and s.by_taps else 1)
    return s.images * s.lines * s.pixels * registers * (terms + Cycles.RESULT)


def _plane_cycles(s: Sizes, lanes: int) -> float:
    """Of a convolution, plane by plane."""
    if s.inputs > WIDE and s.taps > 1:
        return math.inf
    registers = -(-s.pixels // lanes)
    gathered, made = s.groups * s.inputs * s.phases, s.groups * s.outputs
    line = made * s.inputs * s.taps * registers * Cycles.PLANE_TERM
    line += gathered * (registers * Cycles.GATHER + Cycles.GATHER_LINE)
    line += made * (registers * Cycles.FINISH + Cycles.FINISH_LINE)
    return s.images * (s.lines * line + s.groups * Cycles.PLANE)
