"""Rules: what follows a sum of integers goes into its store: scales, rounding, the sum with another value.

In the order of `bslite.ops.integer.FINISH`. Each rule takes one node more; the layer takes its name, because
its value is that one's.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bslite.ops.integer import AS_IT_IS
from bslite.passes.channels import channel_vector
from bslite.passes.draft import Draft
from bslite.passes.families import INT_CONVS
from bslite.passes.rewrite import other_input
from bslite.spec import Array, Node

PRODUCTS = (*INT_CONVS, "int_linear")
#: Ops that are bounds.
BOUNDS = {"relu": (0.0, np.inf), "relu6": (0.0, 6.0)}


def into_sum(draft: Draft, node: Node) -> bool:
    """The node, and the product of integers that it alone reads, as one."""
    rule = {
        "cast": _cast, "mul": _scale, "add": _shift, "pairs": _pairs, "quantize": _round,
        **dict.fromkeys((*BOUNDS, "clamp"), _bounds),
    }.get(node.op)  # fmt: skip
    for name in dict.fromkeys(node.inputs):
        product = draft.alone(name)
        if rule is not None and product is not None and product.op in PRODUCTS:
            made = rule(draft, node, product)
            if made is not None:
                draft.put(made)
                return True
    return False


def _with(
    node: Node,
    product: Node,
    params: Mapping[str, str] | None = None,
    inputs: tuple[str, ...] = (),
    **attrs: Any,
) -> Node:
    """The product as ``node``, with more parameters, inputs and other attributes."""
    return Node(
        node.name, product.op, (*product.inputs, *inputs), {**product.params, **(params or {})},
        {**product.attrs, **attrs},
    )  # fmt: skip


def _channel_axis(draft: Draft, product: Node) -> int:
    return len(draft.shape(product.name)) - 1 if product.op == "int_linear" else 1


def _per_channel(draft: Draft, product: Node, value: Array | None) -> Array | None:
    """A constant as a number for each channel of the product; None if it varies along other axes."""
    axis = _channel_axis(draft, product)
    shape = draft.shape(product.name)
    return None if value is None else channel_vector(value, len(shape), axis, shape[axis])


def _bare(product: Node) -> bool:
    """Whether nothing but a scale follows the sum so far."""
    same = product.attrs["first"] == AS_IT_IS == product.attrs["second"]
    return product.attrs["to"] == "float32" and same and not product.attrs["own"]


def _cast(draft: Draft, node: Node, product: Node) -> Node | None:
    if node.attrs["to"] != "float32" or product.attrs["to"] != "int32":
        return None
    return _with(node, product, to="float32")


def _scale(draft: Draft, node: Node, product: Node) -> Node | None:
    """Numbers per channel, and for a linear layer one that is computed."""
    if not _bare(product) or "shift" in product.params or not draft.alike(node.name, product.name):
        return None
    other = other_input(node, product.name)
    if "scale" in product.params or (len(product.inputs) > 1 and product.op == "int_linear"):
        return None
    scale = _per_channel(draft, product, draft.constant(other))
    factor = None
    if scale is None and product.op == "int_linear":
        factor, scale = _factor(draft, product, other)
    if scale is None and factor is None:
        return None
    params = {}
    if scale is not None:
        params = {"scale": f"{node.name}/scale"}
        draft.params[params["scale"]] = np.ascontiguousarray(scale)
    return _with(node, product, params, (factor,) if factor is not None else ())


def _factor(draft: Draft, product: Node, name: str) -> tuple[str | None, Array | None]:
    """A value as one number that is computed, times constants per channel."""
    if draft.shape(name) == ():
        return name, None
    node = draft.nodes.get(name)
    if node is None or node.op != "mul":
        return None, None
    for one in node.inputs:
        scale = _per_channel(draft, product, draft.constant(other_input(node, one)))
        if draft.shape(one) == () and scale is not None and draft.place[one] < draft.place[product.name]:
            return one, scale
    return None, None


def _shift(draft: Draft, node: Node, product: Node) -> Node | None:
    """A bias."""
    constant = draft.constant(other_input(node, product.name))
    if not _bare(product) or "shift" in product.params or not draft.alike(node.name, product.name):
        return None
    shift = _per_channel(draft, product, constant)
    if shift is None:
        return None
    draft.params[f"{node.name}/shift"] = np.ascontiguousarray(shift)
    return _with(node, product, {"shift": f"{node.name}/shift"})


def _bounds(draft: Draft, node: Node, product: Node) -> Node | None:
    """A ReLU or a clamp, before numbers are rounded."""
    attrs = product.attrs
    which = "second" if attrs["own"] else "first"
    low, high, step, least = attrs[which]
    if attrs["to"] != "float32" or step:
        return None
    below, above = BOUNDS.get(node.op) or (node.attrs["low"], node.attrs["high"])
    if below > above or below > high or above < low:
        return None
    return _with(node, product, None, (), **{which: (max(low, below), min(high, above), step, least)})


def _round(draft: Draft, node: Node, product: Node) -> Node | None:
    """To 8 bits."""
    attrs = product.attrs
    which = "second" if attrs["own"] else "first"
    low, high, step, _ = attrs[which]
    least = node.attrs["low"]
    if attrs["to"] != "float32" or step or least != round(least) or abs(least) > 2**14:
        return None
    return _with(node, product, None, (), **{which: (low, high, node.attrs["scale"], node.attrs["low"])})


def _pairs(draft: Draft, node: Node, product: Node) -> Node | None:
    """What is rounded, as pairs."""
    attrs = product.attrs
    if len(node.inputs) > 1 or attrs["to"] != "float32" or not (attrs["first"][2] or attrs["second"][2]):
        return None
    if node.attrs["axis"] % len(draft.shape(node.name)) != _channel_axis(draft, product):
        return None
    groups = [g for g in (node.attrs["groups"], attrs.get("groups", 1)) if g > 1]
    channels = draft.shape(product.name)[_channel_axis(draft, product)]
    if any(channels // g % 2 for g in groups):
        return None
    return _with(node, product, to="pairs")


def _multiple(draft: Draft, name: str) -> tuple[str, float]:
    """A value as another one times a number."""
    node = draft.nodes.get(name)
    if node is not None and node.op == "mul":
        for one in node.inputs:
            number = draft.number(other_input(node, one))
            if number is not None and draft.shape(one) == draft.shape(name):
                return one, number
    return name, 1.0


def _is_rounded(node: Node | None) -> bool:
    """Whether a node makes float32 numbers of 8 bits and a sign."""
    if node is None:
        return False
    if node.op in PRODUCTS:
        last = "second" if node.attrs["own"] else "first"
        return bool(node.attrs["to"] == "float32" and node.attrs[last][2])
    return node.op == "quantize" and abs(node.attrs["low"]) <= 2**14


def sum_of_rounded(draft: Draft, node: Node) -> bool:
    """``a * own + b * other`` of numbers of 8 bits, where a convolution makes ``a`` alone: in its store."""
    for name in dict.fromkeys(node.inputs):
        other = other_input(node, name)
        mine, own = _multiple(draft, name)
        theirs, factor = _multiple(draft, other)
        product = draft.alone(mine)
        if product is None or product.op not in INT_CONVS or not _is_rounded(product) or not own:
            continue
        if product.attrs["own"] or mine == theirs or (mine != name and draft.alone(name) is None):
            continue
        source = draft.nodes.get(theirs)
        if source is None or not _is_rounded(source) or draft.place[theirs] > draft.place[mine]:
            continue
        if not draft.alike(node.name, mine, theirs):
            continue
        pairs = Node(f"{theirs}.pairs", "pairs", (theirs,), attrs={"axis": 1, "groups": 1})
        found = draft.nodes.get(pairs.name)
        if found is None:
            draft.put(_with(node, product, inputs=(pairs.name,), own=own, other=factor), pairs)
            return True
        if found == pairs and draft.place[found.name] < draft.place[node.name]:
            draft.put(_with(node, product, inputs=(pairs.name,), own=own, other=factor))
            return True
    return False


def rounded_parts(draft: Draft, node: Node) -> bool:
    """What rounds a concat of rounded sums times numbers: in the stores of the sums, which round twice."""
    concat = draft.alone(node.inputs[0])
    low = node.attrs["low"]
    if concat is None or concat.op != "concat" or low != round(low) or abs(low) > 2**14:
        return False
    if len(set(concat.inputs)) < len(concat.inputs):
        return False
    parts = []
    for name in concat.inputs:
        source, own = _multiple(draft, name)
        product = draft.alone(source)
        if product is None or draft.alone(name) is None or product.op not in INT_CONVS or not own:
            return False
        if product.attrs["own"] or not _is_rounded(product):
            return False
        parts.append(_with(product, product, own=own, second=(-np.inf, np.inf, node.attrs["scale"], low)))
    made = [Node(f"{node.name}/{i}", p.op, p.inputs, p.params, p.attrs) for i, p in enumerate(parts)]
    draft.put(Node(node.name, "concat", tuple(p.name for p in made), attrs=concat.attrs), *made)
    return True
