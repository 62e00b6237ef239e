"""Recognises attention that is written out, ``softmax(q @ k^T * scale + mask) @ v``, and makes it one op.

The op never stores the scores. A model may scale the scores, or q or k beforehand, by a number or by one for
each head. It may add any number of masks; constant masks become one. It may hide keys by a condition, a
known or a computed one. A dropout may multiply the weights by noise. Between additions it may cut the first
axis of the scores in two (Swin adds one mask per window of an image, and folds images and windows again).
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from bslite.passes.rewrite import params_of, readers
from bslite.spec import Array, ModelSpec, Node

SMALLEST = 1e-30  # a divisor whose reciprocal float32 has
#: A score that leaves a key no weight beside one that counts: float32 has only every eighth number there.
HIDDEN = -1e8
#: What is added instead: the sum is this number whatever the score, so a row of hidden keys weighs all alike.
COVER = -1e30
MODEST = 1e6  # a mask below it vanishes beside what covers a score


@dataclass
class Match:
    """What one attention consists of: values by name, and the nodes that fall away."""

    q: str
    k: str  # as the scores' product has it, [..., E, S]
    v: str
    scale: float = 1.0
    factors: list[str] = field(default_factory=list)  # constants with a number for each head
    masks: list[str] = field(default_factory=list)  # that are added
    hides: list[str] = field(default_factory=list)  # that cover scores, all with ...
    fill: float | None = None  # ... this number
    noise: str = ""  # that weights are multiplied by, if any
    cut: Node | None = None  # the reshape that cuts the first axis in two,
    joined: Node | None = None  # and the one that undoes it
    gone: list[Node] = field(default_factory=list)

    def scaled(self, number: float, divides: bool) -> bool:
        """Note that the scores are multiplied or divided by ``number``; False if that is no finite scale."""
        if not math.isfinite(number) or (divides and abs(number) < SMALLEST):
            return False
        self.scale = self.scale / number if divides else self.scale * number
        return True


class Finder:
    """Looks for attention above the products with v."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.nodes = {n.name: n for n in spec.nodes}
        self.shapes = spec.infer_shapes([i.example for i in spec.inputs])
        self.reading = readers(spec)
        #: values to be made: of which value, its axes in which order
        self.turned: dict[str, tuple[str, Sequence[int]]] = {}
        #: masks to be made of known conditions: where keys are hidden, and what hides them
        self.made: dict[str, tuple[Array, float]] = {}
        #: masks to be made of conditions: which one, whether it is true of hidden keys, what hides them
        self.hiding: dict[str, tuple[str, bool, float]] = {}

    def match(self, node: Node) -> Match | None:
        """The attention whose last product is ``node``, or None if it is no such product."""
        weights = self._inner(node.inputs[0]) if node.op == "matmul" else None
        softmax, noise = self._dropped(weights) if weights is not None else (None, "")
        if softmax is None or softmax.op != "softmax" or len(self.shapes[softmax.name]) < 3:
            return None
        if softmax.attrs["axis"] not in (-1, len(self.shapes[softmax.name]) - 1):
            return None
        found = Match("", "", node.inputs[1], noise=noise, gone=[softmax])
        if noise:
            found.gone.append(cast(Node, weights))
        above: Node | None = self._inner(softmax.inputs[0])
        while above is not None and above.op != "matmul":
            above = self._take(above, found)
        if above is None or (found.joined is None) != (found.cut is None) or (found.cut and noise):
            return None
        found.q, found.k = above.inputs
        found.gone.append(above)
        self._scaled_before(found)
        if found.cut is not None and not self._masks_fit(found):
            return None
        return found

    def _dropped(self, weights: Node) -> tuple[Node | None, str]:
        """The node that makes weights, perhaps before a dropout, and the noise of that."""
        if weights.op == "mul":
            for name, noise in (weights.inputs, weights.inputs[::-1]):
                softmax, alike = self._inner(name), self.shapes[name] == self.shapes[noise]
                if alike and softmax is not None and softmax.op == "softmax":
                    return softmax, noise
        return weights, ""

    def _inner(self, name: str) -> Node | None:
        """The node that makes the value ``name``, if exactly one node reads that value."""
        node = self.nodes.get(name)
        alone = len(self.reading.get(name, [])) == 1 and name not in self.spec.outputs
        return node if alone else None

    def constant(self, name: str) -> Array | None:
        """The value, if it is a constant of float32."""
        node = self.nodes.get(name)
        if node is None or node.op != "constant" or self.spec.dtypes[name] != "float32":
            return None
        return self.spec.params[node.params["value"]]

    def _take(self, node: Node, found: Match) -> Node | None:
        """Note what ``node`` does to the scores; the node that makes the scores it does it to, or None."""
        found.gone.append(node)
        if node.op == "add" and found.scale == 1.0 and not found.factors:
            for scores, mask in (node.inputs, node.inputs[::-1]):
                above = self._inner(scores)
                if self.shapes[scores] == self.shapes[node.name] and above and above.op != "constant":
                    if found.hides and not self._is_modest(mask):
                        return None  # what this mask hides, too, would be hidden twice
                    found.masks.append(mask)
                    return above
        elif node.op == "where" and found.scale == 1.0 and not found.factors:
            return self._hides(node, found)
        elif node.op in ("mul", "div"):
            for scores, factor in (node.inputs, node.inputs[::-1])[: 2 if node.op == "mul" else 1]:
                right = self.shapes[scores] == self.shapes[node.name]
                if right and self._factor(factor, found, node.op == "div"):
                    return self._inner(scores)
        elif node.op == "reshape" and min(node.attrs["shape"], default=0) >= -1:
            small, large = self.shapes[node.name], self.shapes[node.inputs[0]]
            if found.joined is None and len(large) == len(small) + 1 and large[2:] == small[1:]:
                found.joined = node
                return self._inner(node.inputs[0])
            joined = found.joined
            if joined is not None and found.cut is None and large == self.shapes[joined.name]:
                found.cut = node
                return self._inner(node.inputs[0])
        return None

    def _is_modest(self, mask: str) -> bool:
        """Whether a mask is known to hide no key."""
        value = self.constant(mask)
        return value is not None and bool((np.abs(value) < MODEST).all())

    def _hides(self, node: Node, found: Match) -> Node | None:
        """Note the mask of keys that a condition leaves no weight; the node that makes the scores.

        A hidden score *is* the fill, and here a number is added to it. The answer is the same where all keys
        of a row are hidden, too: the sum is the fill, or one number for all of them. Only NaN stays NaN. Of
        gradients that is not true: see `fuse_attention`.
        """
        condition, first, second = node.inputs
        if found.joined is not None or not self.shapes[condition]:
            return None
        for scores, least in ((first, second), (second, first)):
            constant = self.constant(least)
            if constant is None or constant.size != 1 or not (fill := float(constant.reshape(()))) <= HIDDEN:
                continue
            covers = not found.masks or fill <= COVER  # or masks of the same scores would tell keys apart
            if self.shapes[scores] != self.shapes[node.name] or found.fill not in (None, fill) or not covers:
                return None
            found.fill = fill
            name, above = f"{node.name}/hidden", self.nodes.get(condition)
            cover = fill if found.masks or math.isinf(fill) else COVER
            if above is not None and above.op == "constant":
                self.made[name] = self.spec.params[above.params["value"]] ^ (scores == first), cover
            else:
                self.hiding[name] = condition, scores == second, cover
            self.shapes[name] = self.shapes[condition]
            found.hides.append(name)
            return self._inner(scores)
        return None

    def shows_a_key(self, found: Match) -> bool:
        """Whether every row is known to have a key that no condition hides, nor a mask beside one."""
        known = [self.made[name][0] for name in found.hides if name in self.made]
        if len(known) < len(found.hides) or (known and not all(map(self._is_modest, found.masks))):
            return False
        return not known or not functools.reduce(np.logical_or, known).all(-1).any()

    def _factor(self, name: str, found: Match, divides: bool) -> bool:
        """Note a constant that scales all scores of a head alike; False if it is none."""
        value = self.constant(name)
        if value is None or (value.size > 1 and (divides or value.shape[-2:] != (1, 1))):
            return False
        if value.size == 1:
            return found.scaled(float(value.reshape(())), divides)
        if found.joined is not None and found.cut is None:
            return False
        found.factors.append(name)
        return True

    def _scaled_before(self, found: Match) -> None:
        """Take in numbers that q and k are multiplied by, where nothing else reads the products."""
        found.q, found.k = self._unscaled(found.q, found), self._unscaled(found.k, found)

    def _unscaled(self, name: str, found: Match) -> str:
        """Note the numbers that the value is multiplied by, also before its axes are turned; what is left."""
        name = self._without_numbers(name, found)
        node = self._inner(name)
        if node is None or node.op != "permute":
            return name
        source = self._without_numbers(node.inputs[0], found)
        if source == node.inputs[0]:
            return name
        found.gone.append(node)
        unscaled = f"{node.name}/unscaled"
        self.turned[unscaled] = (source, node.attrs["order"])
        self.shapes[unscaled] = self.shapes[node.name]
        return unscaled

    def _without_numbers(self, name: str, found: Match) -> str:
        """Note the numbers that the value is multiplied by, one after the other; what they are applied to."""
        while (node := self._inner(name)) is not None and (source := self._by_number(node, found)):
            name = source
        return name

    def _by_number(self, node: Node, found: Match) -> str | None:
        """Note the number that ``node`` multiplies a value by; the value, or None."""
        if node.op not in ("mul", "div"):
            return None
        for source, factor in (node.inputs, node.inputs[::-1])[: 2 if node.op == "mul" else 1]:
            value = self.constant(factor)
            if value is None or value.size > 1 or self.shapes[source] != self.shapes[node.name]:
                continue
            if found.scaled(float(value.reshape(())), node.op == "div"):
                found.gone.append(node)
                return source
        return None

    def _masks_fit(self, found: Match) -> bool:
        """Whether all masks, and q, k and v, can be seen with the first axis cut in two."""
        assert found.cut is not None
        assert found.joined is not None
        scores = self.shapes[found.joined.name]
        rank = len(scores)
        whole = all(
            len(self.shapes[x]) == rank and self.shapes[x][0] == scores[0] for x in (found.q, found.v)
        )
        plain = all(
            len(self.shapes[m]) < rank or self.shapes[m][0] == 1 or len(self.shapes[m]) == rank + 1
            for m in (*found.masks, *found.hides)
        )
        k = self.turned[found.k][0] if found.k in self.turned else found.k
        return whole and plain and self.shapes[k][:1] == scores[:1]


def fuse_attention(spec: ModelSpec, learns: bool = False) -> ModelSpec:
    """``spec`` with every attention that is written out as one op, named after its last product.

    ``learns``: for a model whose gradients are taken. Scores of a row whose keys are all hidden have none
    where they are replaced by a number, and some where a number is added to them: such rows must not be.
    """
    finder = Finder(spec) if any(n.op == "softmax" for n in spec.nodes) else None
    found = {n.name: m for n in spec.nodes if finder and (m := finder.match(n))}
    if finder is not None and learns:
        found = {name: m for name, m in found.items() if finder.shows_a_key(m)}
    if finder is None or not found:
        return spec
    gone = {n.name for m in found.values() for n in m.gone}
    params: dict[str, Array] = {}
    nodes: list[Node] = []
    for node in spec.nodes:
        if node.name in found:
            nodes += Writer(finder, node, found[node.name], params).nodes()
        elif node.name not in gone:
            nodes.append(node)
    read = {name for n in nodes for name in n.inputs} | set(spec.outputs)
    nodes = [n for n in nodes if n.op != "constant" or n.name in read]
    return spec.replace(nodes=tuple(nodes), params=params_of(nodes, {**spec.params, **params}))


class Writer:
    """Writes the nodes that stand for a match whose last product was ``node``."""

    def __init__(self, finder: Finder, node: Node, match: Match, params: dict[str, Array]) -> None:
        self.finder, self.node, self.match, self.params = finder, node, match, params
        self.made: list[Node] = []

    def nodes(self) -> list[Node]:
        """The nodes, in order; the last has the name of the product."""
        match, name = self.match, self.node.name
        q, v = match.q, match.v
        if q in self.finder.turned:
            source, order = self.finder.turned[q]
            q = self._add("q_unscaled", "permute", source, order=order)
        for i, factor in enumerate(match.factors):
            q = self._add(f"q{i or ''}", "mul", q, factor)
        k = self._keys()
        shapes = self.finder.shapes
        if match.cut is None:
            ends = (q, k, v, *self._mask(), *([match.noise] if match.noise else []))
            self.made.append(Node(name, "attention", ends, attrs=self._attrs()))
            return self.made
        assert match.joined is not None
        lead = match.cut.attrs["shape"][:-2]
        q, k, v = (
            self._add(f"{role}_cut", "reshape", x, shape=(*lead, *sizes))
            for role, x, sizes in (
                ("q", q, shapes[match.q][-2:]),
                ("k", k, (shapes[match.v][-2], shapes[match.q][-1])),
                ("v", v, shapes[match.v][-2:]),
            )
        )
        made = self._add("cut", "attention", q, k, v, *self._mask(), **self._attrs())
        shape = (*match.joined.attrs["shape"][:-2], *shapes[name][-2:])
        self.made.append(Node(name, "reshape", (made,), attrs={"shape": shape}))
        return self.made

    def _add(self, part: str, op: str, *inputs: str, **attrs: object) -> str:
        name = f"{self.node.name}/{part}"
        self.made.append(Node(name, op, inputs, attrs=attrs))
        return name

    def _number(self, name: str, value: Array) -> str:
        self.params[name] = value
        self.made.append(Node(name, "constant", params={"value": name}))
        return name

    def _attrs(self) -> Mapping[str, object]:
        return {"scale": self.match.scale, "no_key": "nan", "dropped": bool(self.match.noise)}

    def _keys(self) -> str:
        """The name of k as ``[..., S, E]``, with the last two axes that the product exchanges in order."""
        k = self.match.k
        source, order = self.finder.turned.get(k, (k, ()))
        before = self.finder.nodes.get(k)
        if before is not None and before.op == "permute":
            source, order = before.inputs[0], before.attrs["order"]
        order = list(order) or list(range(len(self.finder.shapes[k])))
        order[-2:] = order[-1], order[-2]
        return source if order == sorted(order) else self._add("k", "permute", source, order=order)

    def _mask(self) -> list[str]:
        """The names of the attention's mask, one or none: the sum of the constant masks, plus the others."""
        known = [c for m in self.match.masks if (c := self.finder.constant(m)) is not None]
        rest = [m for m in self.match.masks if self.finder.constant(m) is None]
        hidden = [self.finder.made[m] for m in self.match.hides if m in self.finder.made]
        computed = [m for m in self.match.hides if m in self.finder.hiding]
        if hidden:
            where, cover = functools.reduce(np.logical_or, (h for h, _ in hidden)), hidden[0][1]
            alone = not (rest or known or computed)
            if alone and not where.all(-1).any():
                cover = -math.inf  # what is infinite need not be computed
            made = np.where(where, np.float32(cover), np.float32(0))
            if computed:
                computed.append(self._number(f"{self.node.name}/hidden", made))
            else:
                known.append(made)
        if len(known) == 1 and not hidden:
            rest += [m for m in self.match.masks if self.finder.constant(m) is not None]
        elif known:
            total = functools.reduce(np.add, (c.astype(np.float64) for c in known))
            with np.errstate(over="ignore"):  # as the sum of the masks in float32 is
                rest.append(self._number(f"{self.node.name}/mask", total.astype(np.float32)))
        computed = [self._covered(m) if m in self.finder.hiding else m for m in computed]
        while len(computed) > 1:  # a key is hidden once
            computed[:2] = [self._add(f"hidden{len(computed)}", "minimum", *computed[:2])]
        rest += computed
        while len(rest) > 1:
            rest[:2] = [self._add(f"mask{len(rest)}", "add", *rest[:2])]
        return rest

    def _covered(self, mask: str) -> str:
        """Make the mask of a computed condition."""
        condition, hides, cover = self.finder.hiding[mask]
        ends = [self._number(f"{mask}_{i}", np.asarray(x, np.float32)) for i, x in enumerate((cover, 0.0))]
        self.made.append(Node(mask, "where", (condition, *(ends if hides else ends[::-1]))))
        return mask
