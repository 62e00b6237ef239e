"""Products of bytes: which values lie as quads, and weights whose products an instruction adds exactly."""

from collections.abc import Sequence

import numpy as np

from bslite.passes.draft import Draft
from bslite.passes.families import INT_CONVS
from bslite.passes.integers import PRODUCTS
from bslite.spec import Array, Node

MOST = 128  # 255 times it, and so the sum of two products, is within 16 bits
SAMPLE = 64  # outputs whose weights say what quads cost
PANEL = 16  # outputs of a panel, about
NEAR = 0.97  # of the instructions of pairs, quads take at most
#: Ops whose numbers are among those that they are given.
KEEP_NUMBERS = ("max_pool1d", "max_pool2d", "max_pool3d", "reshape", "flatten", "permute", "slice")


def exact_parts(weight: Array) -> tuple[Array, Array]:
    """Weights of int8 ``[K, C/groups, ...]`` as the sum of two.

    In each of them, the positive ones of two neighbouring channels add up to `MOST` at most, and so do the
    negative ones: times numbers of 0 to 255, the sum of the two products is within 16 bits.
    """
    _, c, *taps = weight.shape
    wide = np.pad(weight.astype(np.int16), ((0, 0), (0, c % 2), *((0, 0) for _ in taps)))
    first, second = wide[:, ::2], wide[:, 1::2]
    room = MOST - np.abs(first)
    cut = np.where(first * second > 0, np.clip(second, -room, room), second)
    main, rest = wide.copy(), np.zeros_like(wide)
    main[:, 1::2], rest[:, 1::2] = cut, second - cut
    return main[:, :c].astype(np.int8), rest[:, :c].astype(np.int8)


def choose_quads(draft: Draft, dots: bool | None) -> None:
    """Let values that only products of integers read lie as quads, where that is cheaper than pairs.

    ``dots``: an instruction multiplies bytes by any weights of int8; False: by those of `exact_parts`;
    None: there is none.
    """
    if dots is None:
        return
    waiting = []
    for node in list(draft.nodes.values()):
        least = _least(draft, node)
        if least is None or node.name in draft.outputs:
            continue
        readers = [draft.nodes[name] for name in draft.reading[node.name]]
        reading = [r for r in readers if r.inputs[0] == node.name]
        if not all(r in reading or _adds(r, node) for r in readers):
            continue
        if not reading:
            waiting.append((node, least, readers))
        elif all(_can_read(draft, r, least) for r in reading) and (dots or _cheaper(draft, reading)):
            _change(draft, node, least, readers)
    for node, least, readers in waiting:  # residuals, whose readers have one way to add quads to quads
        if all(draft.nodes[r.name].attrs["to"] == "quads" for r in readers):
            _change(draft, node, least, readers)


def _adds(reader: Node, node: Node) -> bool:
    """Whether the reader is a convolution whose residual is the node."""
    return reader.op in INT_CONVS and reader.inputs[1:] == (node.name,)


def _least(draft: Draft, node: Node) -> int | None:
    """The least of 256 numbers that the pairs of a node may be; None if it makes none, or others."""
    if node.op in PRODUCTS and node.attrs["to"] == "pairs":
        groups = node.attrs.get("groups", 1)
        if groups > 1 and draft.param(node.params["weight"]).shape[0] // groups % 4:
            return None
        return int(node.attrs["second" if node.attrs["second"][2] else "first"][3])
    return _rounded_from(draft, node.inputs[0]) if node.op == "pairs" and len(node.inputs) == 1 else None


def _rounded_from(draft: Draft, name: str) -> int | None:
    """The same of a value of float32."""
    node = draft.nodes.get(name)
    if node is None:
        return None
    if node.op in KEEP_NUMBERS:
        return _rounded_from(draft, node.inputs[0])
    if node.op == "concat":
        found = {_rounded_from(draft, part) for part in node.inputs}
        return found.pop() if len(found) == 1 else None
    if node.op == "quantize":
        low = node.attrs["low"]
        return int(low) if low == round(low) and abs(low) <= 2**14 else None
    if node.op in PRODUCTS and node.attrs["to"] == "float32":
        _, _, step, least = node.attrs["second" if node.attrs["second"][2] else "first"]
        return int(least) if step else None
    return None


def _can_read(draft: Draft, reader: Node, least: int) -> bool:
    """Whether a product takes quads: of int8, groups of whole cells, no padding that is not the least."""
    if reader.op not in PRODUCTS:
        return False
    weight = draft.param(reader.params["weight"])
    if weight.dtype != np.int8 or (reader.attrs.get("groups", 1) > 1 and weight.shape[1] % 4):
        return False
    return least == 0 or not any(reader.attrs.get("padding", ()))


def _cheaper(draft: Draft, readers: Sequence[Node]) -> bool:
    """Whether quads are cheaper for all readers together, judged by a part of the weights.

    Three instructions multiply the numbers of 32 bytes, and three more for each other part that has weights
    in a panel; pairs take four.
    """
    pairs = quads = 0.0
    for reader in readers:
        weight = draft.param(reader.params["weight"])
        rest = exact_parts(weight[:SAMPLE])[1]
        k, c = rest.shape[:2]
        rest = np.pad(rest, ((0, -k % PANEL), (0, -c % 4), *((0, 0) for _ in rest.shape[2:])))
        by_panel = rest.reshape(-1, PANEL, rest.shape[1] // 4, 4, rest[0, 0].size)
        pairs += weight.size * 2 * -(-weight.shape[1] // 2) / weight.shape[1]
        cells = 4 * -(-weight.shape[1] // 4) / weight.shape[1]
        quads += weight.size * cells * 0.75 * (1 + float(np.mean(by_panel.any((1, 3)))))
    return quads < NEAR * pairs


def _change(draft: Draft, node: Node, least: int, readers: Sequence[Node]) -> None:
    """Let the node make quads, and its readers read them."""
    node = draft.nodes[node.name]  # as a reader it may have changed
    if node.op == "pairs" and (parts := _parts(draft, node)):
        concat = draft.nodes[node.inputs[0]]
        draft.put(Node(node.name, "concat", concat.inputs, {}, concat.attrs))
        for part in parts:
            draft.put(Node(part.name, part.op, part.inputs, part.params, {**part.attrs, "to": "quads"}))
    elif node.op == "pairs":
        draft.put(Node(node.name, "quads", node.inputs, {}, {**node.attrs, "least": least}))
    else:
        draft.put(Node(node.name, node.op, node.inputs, node.params, {**node.attrs, "to": "quads"}))
    for name in [r.name for r in readers]:
        reader = draft.nodes[name]
        attrs, params = dict(reader.attrs), dict(reader.params)
        if reader.inputs[0] == node.name:
            attrs["reads"] = "quads"
            if least:
                params["offset"] = _offset(draft, reader, least)
        if node.name in reader.inputs[1:]:
            attrs.update(adds="quads", under=least)
        draft.put(Node(name, reader.op, reader.inputs, params, attrs))


def _parts(draft: Draft, node: Node) -> list[Node]:
    """The convolutions whose sums, rounded and joined, become the pairs; none unless all can make quads."""
    concat = draft.alone(node.inputs[0])
    if concat is None or concat.op != "concat" or node.attrs["axis"] != 1 or concat.attrs["axis"] != 1:
        return []
    parts = [part for name in concat.inputs if (part := draft.alone(name)) is not None]
    for part in parts:
        if part.op not in INT_CONVS or part.attrs["groups"] > 1 or part.attrs["to"] != "float32":
            return []
        if draft.param(part.params["weight"]).shape[0] % 4:
            return []
    return parts if len(parts) == len(concat.inputs) and node.attrs["groups"] == 1 else []


def _offset(draft: Draft, reader: Node, least: int) -> str:
    """The key of the product's offset plus ``least`` times its weights."""
    weight = draft.param(reader.params["weight"])
    given = [draft.param(reader.params["offset"])] if "offset" in reader.params else []

    def make() -> Array:
        total = least * weight.reshape(len(weight), -1).sum(1, dtype=np.int64) + sum(given)
        return total.astype(np.uint32).view(np.int32)

    key = f"{reader.name}/quads.offset"
    draft.derive(key, ("offset of quads", least), [weight, *given], make)
    return key
