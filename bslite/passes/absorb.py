"""Rules: constants that scale or shift what a layer makes go into its parameters.

Computed in float64, rounded once. The layer takes the name of the node that is gone: its value is that one's.
"""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from bslite.passes.channels import channel_vector, scaled_weight, shifted_bias, trailing_array
from bslite.passes.draft import Draft
from bslite.passes.families import MOVES, SCALED
from bslite.spec import Array, Node

NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm")
#: Scales beyond these would take weights out of float32's range.
SMALLEST, LARGEST = 1e-15, 1e15


def scale_shift(draft: Draft, node: Node) -> tuple[str, Array | None, Array | None] | None:
    """``value * scale + shift`` that a node with one constant operand is: the value, the constants."""
    first, second = node.inputs
    for value, other, swapped in ((first, second, False), (second, first, True)):
        constant = draft.constant(other)
        if constant is None or draft.constant(value) is not None or (swapped and node.op == "div"):
            continue
        c = constant.astype(np.float64)
        if not np.isfinite(c).all() or (node.op == "div" and not c.all()):
            return None
        if node.op in ("mul", "div"):
            return value, c if node.op == "mul" else 1.0 / c, None
        if node.op == "sub" and swapped:
            return value, np.array(-1.0), c
        return value, None, c if node.op == "add" else -c
    return None


def constants_into_layer(draft: Draft, node: Node) -> bool:
    """A layer times or plus constants, of a number per channel, as a layer with other parameters."""
    found = scale_shift(draft, node)
    before = draft.alone(found[0]) if found else None
    if found is None or before is None or before.op not in (*SCALED, *NORMS):
        return False
    if not draft.alike(before.name, node.name):
        return False
    fitted = [None if c is None else _fitted(draft, before, c) for c in found[1:]]
    if any(f is None and c is not None for f, c in zip(fitted, found[1:], strict=True)):
        return False
    layer = _with_constants(draft, before, node.name, *fitted)
    if layer is not None:
        draft.put(layer)
    return layer is not None


def _with_constants(
    draft: Draft, before: Node, name: str, scale: Array | None, shift: Array | None
) -> Node | None:
    """The layer as ``name``, its value scaled and shifted; None if its parameters cannot say that."""
    if scale is not None and not ((np.abs(scale) > SMALLEST) & (np.abs(scale) < LARGEST)).all():
        return None
    params = {role: draft.param(key) for role, key in before.params.items()}
    if scale is not None and before.op in SCALED and _of_integers(params["weight"]):
        return None
    roles = ["bias"] if shift is not None or "bias" in before.params else []
    roles += ["weight"] if scale is not None else []
    if "bias" in roles and "bias" not in before.declaration.params:
        return None
    constants = tuple(None if c is None else (c.shape, c.tobytes()) for c in (scale, shift))
    about = (before.op, before.attrs.get("groups"), tuple(params), constants)
    keys = dict(before.params)
    for role in roles:
        keys[role] = f"{name}/absorbed.{role}"
        make = partial(_absorbed, role, before, params, scale, shift)
        array = draft.derive(keys[role], (f"absorbed {role}", about), list(params.values()), make)
        if not np.isfinite(array).all():
            return None
    return Node(name, before.op, before.inputs, keys, before.attrs)


def _absorbed(
    role: str, layer: Node, params: Mapping[str, Array], scale: Array | None, shift: Array | None
) -> Array:
    """The weight or the bias of a ``layer`` whose value is scaled and shifted."""
    factor: Array | float = 1.0 if scale is None else scale
    made: Array | float
    if role == "bias":
        made = shifted_bias(params, factor, 0.0 if shift is None else shift)
    elif layer.op in SCALED:
        assert scale is not None
        made = scaled_weight(layer, params["weight"], scale)
    else:
        made = params["weight"].astype(np.float64) * factor if "weight" in params else factor
    return np.ascontiguousarray(np.asarray(made, np.float32))


def constants_behind_moves(draft: Draft, node: Node) -> bool:
    """The same of a product whose channels reshapes or permutations have moved to another axis."""
    found = scale_shift(draft, node)
    top = draft.alone(found[0]) if found else None
    if found is None or top is None or top.op not in MOVES or not draft.alike(top.name, node.name):
        return False
    axis = _one_axis(found, len(draft.shape(node.name)))
    moved: Node | None = top
    while moved is not None and axis is not None and moved.op in MOVES:
        axis = _axis_before(draft, moved, axis)
        moved = draft.alone(moved.inputs[0])
    if moved is None or axis is None or moved.op not in SCALED:
        return False
    rank = len(draft.shape(moved.name))
    if axis != (rank - 1 if moved.op == "linear" else 1):
        return False
    size = draft.shape(moved.name)[axis]
    scale, shift = (None if c is None else np.broadcast_to(c.reshape(-1), (size,)) for c in found[1:])
    layer = _with_constants(draft, moved, moved.name, scale, shift)
    if layer is None:
        return False
    draft.put(layer)
    draft.put(Node(node.name, top.op, top.inputs, attrs=top.attrs))
    return True


def _one_axis(found: tuple[str, Array | None, Array | None], rank: int) -> int | None:
    """The one axis along which the constants vary; None if there are more, or they are numbers."""
    axes = set()
    for c in found[1:]:
        if c is not None:
            axes |= {i + rank - c.ndim for i, n in enumerate(c.shape) if n != 1}
    return axes.pop() if len(axes) == 1 else None


def _axis_before(draft: Draft, node: Node, axis: int) -> int | None:
    """The axis of what a reshape or permutation reads that is ``axis`` of what it makes; None if none is."""
    if node.op == "permute":
        return int(node.attrs["order"][axis])
    found: set[int | None] = set()
    for shapes in draft.shapes:
        have, made = shapes[node.inputs[0]], shapes[node.name]
        ends = [i for i in range(len(have)) if math.prod(have[:i]) == math.prod(made[:axis])]
        found.add(next((i for i in ends if have[i] == made[axis]), None))
    return found.pop() if len(found) == 1 else None


def _of_integers(weight: Array) -> bool:
    """Whether weights are whole numbers beyond one: of integers, as quantised models have them, their sums
    are exact, which those of scaled weights would not be.
    """
    few = weight.reshape(-1)[:256]
    whole = np.array_equal(few, np.rint(few)) and np.array_equal(weight, np.rint(weight))
    return whole and bool(np.abs(weight).max(initial=0) > 1)


def _fitted(draft: Draft, layer: Node, constant: Array) -> Array | None:
    """The constant in the shape of the layer's bias; None if it varies along other axes."""
    rank = len(draft.shape(layer.name))
    if layer.op in ("layer_norm", "rms_norm"):
        return trailing_array(constant, layer.attrs["normalized_shape"])
    axis = rank - 1 if layer.op == "linear" else 1
    size = draft.fixed(layer.name, [axis])
    return None if size is None else channel_vector(constant, rank, axis, size[0])


def groups_by_reshape(draft: Draft, node: Node) -> bool:
    """A norm of ``[N, groups, ...]`` between two reshapes of images: a group norm of the images."""
    norm = draft.alone(node.inputs[0])
    first = (
        draft.alone(norm.inputs[0]) if norm is not None and norm.op in ("group_norm", "layer_norm") else None
    )
    if norm is None or first is None or first.op not in ("reshape", "flatten"):
        return False
    source, inner = first.inputs[0], len(draft.shape(first.name))
    if not draft.alike(source, node.name) or len(draft.shape(source)) < 2:
        return False
    if any(shapes[source][0] != shapes[first.name][0] for shapes in draft.shapes):
        return False
    channels, cut = draft.fixed(source, [1]), draft.fixed(first.name, [1])
    if channels is None or cut is None:
        return False
    if norm.op == "layer_norm":
        if inner - len(norm.attrs["normalized_shape"]) != 2 or norm.params:
            return False
        groups = cut[0]
    else:
        groups = norm.attrs["num_groups"]
    if channels[0] % groups or (norm.params and groups != cut[0]):
        return False
    keys = {}
    for role, key in norm.params.items():
        keys[role] = f"{node.name}/{role}"
        array, times = draft.param(key), channels[0] // groups
        draft.derive(keys[role], ("repeated", times), [array], partial(np.repeat, array, times))
    attrs = {"num_groups": groups, "eps": norm.attrs["eps"]}
    draft.put(Node(node.name, "group_norm", (source,), keys, attrs))
    return True


def matrix_into_weight(draft: Draft, node: Node) -> bool:
    """A product with a constant matrix is a linear layer, whose weight lies the other way round."""
    x, name = node.inputs
    found = _constant_matrix(draft, name)
    if found is None or len(draft.shape(x)) < 2:
        return False
    key, turned = found
    weight = _weight(draft, node, key, turn=not turned)
    draft.put(Node(node.name, "linear", (x,), params={"weight": weight}))
    return True


def matrix_on_columns(draft: Draft, node: Node) -> bool:
    """A constant matrix times a column for each image is a linear layer, to which the columns are rows."""
    name, x = node.inputs
    found, lead = _constant_matrix(draft, name), len(draft.shape(x)) - 2
    if found is None or lead < 1 or any(shapes[x][-1] != 1 for shapes in draft.shapes):
        return False
    outputs, terms = draft.shape(name)
    row = Node(f"{node.name}/row", "reshape", (x,), attrs={"shape": (*[0] * lead, terms)})
    key, turned = found
    weight = _weight(draft, node, key, turn=turned)
    made = Node(f"{node.name}/made", "linear", (row.name,), params={"weight": weight})
    column = Node(node.name, "reshape", (made.name,), attrs={"shape": (*[0] * lead, outputs, 1)})
    draft.put(column, row, made)
    return True


def _constant_matrix(draft: Draft, name: str) -> tuple[str, bool] | None:
    """The parameter that a value of two axes is, and whether it is turned."""
    matrix = draft.nodes.get(name)
    turned = matrix is not None and matrix.op == "permute" and tuple(matrix.attrs["order"]) == (1, 0)
    if matrix is not None and turned:
        matrix = draft.nodes.get(matrix.inputs[0])
    if matrix is None or matrix.op != "constant" or len(draft.shape(name)) != 2:
        return None
    return matrix.params["value"], turned


def _weight(draft: Draft, node: Node, key: str, turn: bool) -> str:
    """The key of a linear layer's weight: the constant ``key`` as it lies, or the other way round."""
    if not turn:
        return key
    given, made = draft.param(key), f"{node.name}/weight"
    what, sources = draft.held(key) or ("", [given])
    draft.derive(made, ("turned", what), sources, lambda: np.ascontiguousarray(given.T))
    return made


def padding_into_convolution(draft: Draft, node: Node) -> bool:
    """Zeros that are put around an image are the convolution's own padding."""
    before = draft.nodes.get(node.inputs[0])
    if before is None or before.op != "pad" or before.attrs["mode"] != "constant" or before.attrs["value"]:
        return False
    pads, rank = before.attrs["pads"], len(draft.shape(before.name))
    first, last = pads[:rank], pads[rank:]
    if any((*first[:2], *last[:2])) or min(pads) < 0:
        return False
    padding = [a + b for a, b in zip(node.attrs["padding"], (*first[2:], *last[2:]), strict=True)]
    inputs = before.inputs[0], *node.inputs[1:]
    draft.put(Node(node.name, node.op, inputs, node.params, {**node.attrs, "padding": tuple(padding)}))
    return True
