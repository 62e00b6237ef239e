"""Which values have their channels at axis 1: images, signals, volumes.

Values of rank 3 and 5 have them there if convolutions and pools work on them, else at the last axis, as
features and tokens do. Values of rank 4 are images, or rows: heads of an attention, windows of tokens. The
ops around a value decide. What no op on images has made or takes needs no order of its axes; it keeps that of
the model's input, as its results are row-major, too. Images that grow, and that no op on images reads
then, are turned before they do.
"""

import math
from collections.abc import Callable, Collection, Mapping

from bslite.ops import Kind, Shape
from bslite.passes.plane_convs import Region, open_regions, plane_convs
from bslite.spec import ModelSpec, Node

#: Pools of images.
POOLS = ("max_pool2d", "avg_pool2d", "adaptive_max_pool2d", "adaptive_avg_pool2d")
#: Ops on signals and volumes: windows move along the axes after the channels.
WINDOWS = frozenset(
    f"{family}{axes}d"
    for axes in (1, 3)
    for family in (
        "conv", "int_conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_max_pool",
        "adaptive_avg_pool",
    )
) | {"max_pool_places", "pool_grad"}  # fmt: skip
#: Ops that keep the place of every axis, besides the pointwise ones.
SAME_AXES = frozenset(("concat", "pad", "slice", "upsample", "group_norm", "lrn", "dropout"))


#: Ops that work on images, whose channels are axis 1.
IMAGES = frozenset(
    (*POOLS, "conv2d", "int_conv2d", "conv_transpose2d", "upsample", "resize", "grid_sample", "fold",
     "unfold", "group_norm", "batch_stats", "batch_sums", "batch_norm_grad", "max_pool_places", "pool_grad",
     "lrn")
)  # fmt: skip
#: Ops that work on rows, along the last axis; those of the second line if that is their axis.
ROWS = frozenset(
    ("linear", "block_linear", "int_linear", "matmul", "attention", "attention_grad", "layer_norm",
     "rms_norm")
)  # fmt: skip
ALONG_AXIS = frozenset(("softmax", "log_softmax", "normalize"))
#: Views that may make tokens of images.
VIEWS = frozenset(("reshape", "permute", "flatten"))
LARGE = 8  # registers of a plane from which on it is best reduced as it lies
MANY = 8  # groups of an image's channels that threads share out as rows
PAIR = 2  # the last axis of complex numbers


def channels_second(
    spec: ModelSpec, shapes: Mapping[str, Shape], lie_so: Collection[str] = (), lanes: int = 0,
    stays: Callable[[Node], bool] = lambda _: False,
) -> frozenset[str]:  # fmt: skip
    """The values of rank 3 to 5 whose channels are axis 1.

    Of rank 3 and 5: those that windows move over, and those joined to them by ops that keep axes in place. Of
    rank 4: those so joined to ops on images, or to the inputs that ``lie_so`` in memory; of all others those
    that depend on one, unless they are joined to ops on rows, or to rows of pairs, or only depend on one that
    grew. ``lanes``: of a target's registers, if it convolves, pools and resizes planes, too; ``stays``: which
    convolutions are of images even so. Found once for sizes that are alike.
    """
    sizes = tuple((len(shape), _pairs(shape), _few(shape, lanes)) for shape in shapes.values())
    large = _large(spec, shapes, lanes) if lanes else None
    grows = _resized(spec, shapes) if lanes else {}
    convs: frozenset[str] = frozenset()
    if lanes:
        convs = plane_convs(_regions(spec, shapes, lie_so), spec, shapes, lanes, stays)
    alike = sizes, large, frozenset(grows.items()), frozenset(lie_so), convs
    known: dict[object, frozenset[str]] = spec.__dict__.setdefault("_channels_second", {})
    if alike not in known:
        known[alike] = _channels_second(spec, shapes, lie_so, lanes, grows, convs)
    return known[alike]


def _regions(spec: ModelSpec, shapes: Mapping[str, Shape], lie_so: Collection[str]) -> list[Region]:
    """The regions of convolutions that may take planes; found once for values of the same ranks."""
    alike = tuple(map(len, shapes.values())), frozenset(lie_so)
    known: dict[object, list[Region]] = spec.__dict__.setdefault("_plane_regions", {})
    if alike not in known:
        known[alike] = open_regions(spec, shapes, _links(spec, shapes), lie_so)
    return known[alike]


def _pairs(shape: Shape) -> bool:
    """Whether a value of rank 4 looks like complex numbers."""
    return len(shape) == 4 and shape[-1] == PAIR


def _few(shape: Shape, lanes: int) -> bool:
    """Whether a value of rank 4 has so few channels that most lanes of a register of them would be idle."""
    return len(shape) == 4 and 2 * shape[1] < lanes


def _channels_second(
    spec: ModelSpec,
    shapes: Mapping[str, Shape],
    lie_so: Collection[str],
    lanes: int,
    grows: Mapping[str, bool],
    convs: frozenset[str],
) -> frozenset[str]:
    # Results that become tokens had best lie as pixels of images do: with channels last.
    viewed = {name for node in spec.nodes if node.op in VIEWS for name in node.inputs} if grows else set()
    tokens = _joined(viewed, _links(spec, shapes)) if viewed else set()
    resized = {name: grown for name, grown in grows.items() if name not in tokens}
    linked = _links(spec, shapes, resized)
    planes = convs | _planes(spec, shapes, linked, lanes) if lanes else convs
    seeds = {
        node.name
        for node in spec.nodes
        if node.declaration.plain in IMAGES and node.name not in planes and node.name not in resized
    }
    windows: set[str] = set()
    images = set(lie_so)
    rows: set[str] = set()
    for node in spec.nodes:
        op, names = node.declaration.plain, _values(node, shapes)
        four = [n for n in names if len(shapes[n]) == 4]
        if op in WINDOWS and node.name not in planes:
            windows.update(n for n in names if len(shapes[n]) != 4)
        if node.name in seeds:
            images.update(four)
        elif op in ROWS or (op in ALONG_AXIS and node.attrs["axis"] in (-1, 3)):
            rows.update(four)
        rows.update(n for n in four if _pairs(shapes[n]))
    images = _joined(windows | images, linked)
    below = set(lie_so) | seeds
    for node in spec.nodes:
        turns = node.name in resized and node.name not in images
        if not (turns or node.name in convs or below.isdisjoint(node.inputs)):
            below.add(node.name)
    below = {name for name in below if len(shapes[name]) == 4}
    return frozenset(images | below - _joined(rows, linked))


def _values(node: Node, shapes: Mapping[str, Shape]) -> list[str]:
    """The values of rank 3 to 5 that a node reads, but for weights that are values, and its own."""
    read = node.inputs[: len(node.inputs) - len(node.given)]
    return [n for n in (*read, node.name) if len(shapes.get(n, ())) in (3, 4, 5)]


def _resized(spec: ModelSpec, shapes: Mapping[str, Shape]) -> dict[str, bool]:
    """The nodes that resize planes, and whether they let them grow: then what is read is worth turning."""
    found = {}
    for node in spec.nodes:
        y = shapes[node.name]
        axes = (2, 3) if node.op == "upsample" else node.attrs["axes"] if node.op == "resize" else ()
        if len(y) == 4 and {axis % 4 for axis in axes} == {2, 3}:
            found[node.name] = math.prod(y) >= math.prod(shapes[node.inputs[0]])
    return found


def _links(
    spec: ModelSpec, shapes: Mapping[str, Shape], resized: Mapping[str, bool] | None = None
) -> dict[str, set[str]]:
    """The values whose axes lie as each one's do: what a node of one rank keeps in place. Of nodes in
    ``resized`` (see there), those that let planes grow do not, the others do.
    """
    linked: dict[str, set[str]] = {}
    for node in spec.nodes:
        op = node.declaration.plain
        keeps = op in SAME_AXES or op in POOLS or node.declaration.kind in (Kind.POINTWISE, Kind.CHANNEL)
        if resized and node.name in resized:
            keeps = not resized[node.name]
        elif op == "resize":  # of a signal or a volume
            rank = len(shapes[node.name])
            keeps = rank in (3, 5) and {axis % rank for axis in node.attrs["axes"]}.isdisjoint((0, 1))
        if keeps:
            rank = len(shapes.get(node.name, ()))
            names = _values(node, shapes)
            for name in (n for n in names if len(shapes[n]) == rank and n != node.name):
                linked.setdefault(name, set()).add(node.name)
                linked.setdefault(node.name, set()).add(name)
    return linked


def _large(spec: ModelSpec, shapes: Mapping[str, Shape], lanes: int) -> frozenset[str]:
    """The pools whose planes keep most lanes of a register of neighbouring pixels busy."""
    found = set()
    for node in spec.nodes:
        if node.op in POOLS:
            *_, height, width = shapes[node.inputs[0]]
            whole = shapes[node.name][2:] == (1, 1)
            if height * width >= LARGE * lanes if whole else width >= lanes:
                found.add(node.name)
    return frozenset(found)


def _planes(
    spec: ModelSpec, shapes: Mapping[str, Shape], linked: Mapping[str, set[str]], lanes: int
) -> frozenset[str]:
    """What is best taken plane by plane, if no image is joined to it: pools of few channels; pools of large
    planes with no other sliding window, for which it does not pay to turn images there and back; norms of
    many groups.
    """
    pools = {node.name: node.op for node in spec.nodes if node.op in POOLS}
    sliding = {name for name, op in pools.items() if not op.startswith("adaptive")}
    large = _large(spec, shapes, lanes)
    found = {
        name
        for name in pools
        if _few(shapes[name], lanes) or (name in large and len(_joined({name}, linked) & sliding) < 2)
    }
    norms = [node for node in spec.nodes if node.op == "group_norm"]
    return frozenset(found.union(node.name for node in norms if node.attrs["num_groups"] >= MANY))


def _joined(found: set[str], linked: Mapping[str, set[str]]) -> set[str]:
    """The values and all that links join them to."""
    found = set(found)
    waiting = list(found)
    while waiting:
        for name in linked.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
