"""Elements that a condition selects, put where the same condition holds: ``x[m] = f(y[m])``, however many
there are, is a choice between f(y) and x.

f is what has a result for each element by itself. Where gradients are wanted it is a sum or a difference:
others may make infinities of what is not chosen, and zero times one of those is no zero.
"""

from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import draws, memory, writes
from bslite.frontends.torch.put import put
from bslite.frontends.torch.values import dims

SUMS = ("add", "sub", "neg")
COPIES = ("alias", "clone", "to", "_to_copy")
CHECKS = ("_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range")


def choose(graph: Any, gradients: bool) -> None:
    """Write a choice in the place of each assignment of this kind."""
    puts = [n for n in graph.nodes if _is_call(n) and operation(n) == "index_put" and len(n.args) == 3]
    if puts:
        choices = _Choices(graph, gradients)
        for node in puts:
            choices.write_at(node)
        choices.drop()


class _Other(Exception):
    """It is no choice."""


class _Choices:
    """A graph's choices. ``_order``: the places of its nodes. ``_writes``: those that write, and where to."""

    def __init__(self, graph: Any, gradients: bool) -> None:
        self.graph, self.gradients = graph, gradients
        self._order = {node: i for i, node in enumerate(graph.nodes)}
        self._writes = [(i, memory(n.args[0])) for n, i in self._order.items() if _is_call(n) and writes(n)]
        self._selections: dict[Any, None] = {}  # that were put somewhere

    def write_at(self, at: Any) -> None:
        """Write a choice in the place of the assignment ``at``, if it is one."""
        aten, before = load_torch().ops.aten, len(self._selections)
        target, indices, values = at.args
        conditions = [i for i in indices if i is not None]
        held = dict(self._selections)
        try:
            if len(conditions) != 1 or conditions[0].meta["val"].dtype != load_torch().bool:
                return
            whole = self._whole(values, at, at)
        except _Other:
            self._selections = held
            return
        if len(self._selections) == before or values.meta["val"].dtype != target.meta["val"].dtype:
            self._selections = held
            return
        with self.graph.inserting_before(at):
            condition = conditions[0]
            for _ in range(_behind(at)):
                condition = put(self.graph, at, aten.unsqueeze.default, condition, -1)
            chosen = put(self.graph, at, aten.where.self, condition, self._built(whole, at), target)
            if writes(at):
                chosen = put(self.graph, at, aten.copy_.default, target, chosen)
        at.replace_all_uses_with(chosen)
        self.graph.erase_node(at)

    def drop(self) -> None:
        """Remove selections that nothing reads any more but checks of how many elements they have."""
        for selection in self._selections:
            reached = {selection}
            for node in self.graph.nodes:
                if not reached.isdisjoint(node.all_input_nodes):
                    reached.add(node)
            if all(n.users or operation(n) in CHECKS or not _acts(n) for n in reached):
                for node in reversed(list(self.graph.nodes)):
                    if node in reached and not node.users:
                        self.graph.erase_node(node)

    def _whole(self, value: Any, reader: Any, at: Any) -> Any:
        """What ``value``, a function of selected elements, is of all elements: a node, or an operation with
        its arguments. ``reader``: what reads it. ``at``: where it is put.
        """
        if not _is_call(value):
            return self._same_for_all(value, reader, at)
        name = operation(value)
        if name == "index":
            source, indices = value.args
            self._check_same(indices, at.args[1], value, at)
            if len(dims(source.meta["val"])) != len(dims(at.args[0].meta["val"])):
                raise _Other
            self._check_kept(source, value, at)
            self._selections[value] = None
            return source
        if name in ("view", "reshape") and _drops_ones(value):  # as an assignment does
            return self._whole(value.args[0], value, at)
        tags = getattr(value.target, "tags", ())
        if load_torch().Tag.pointwise not in tags and name not in COPIES:
            return self._same_for_all(value, reader, at)
        if writes(value) or draws(value) or (self.gradients and name not in (*SUMS, *COPIES)):
            raise _Other
        return value.target, [self._whole(x, value, at) for x in value.args], dict(value.kwargs)

    def _same_for_all(self, value: Any, reader: Any, at: Any) -> Any:
        """``value``, if it is a number, or has no axis of selected elements."""
        if hasattr(value, "meta"):
            if len(getattr(value.meta.get("val"), "shape", ())) > _behind(at):
                raise _Other
            self._check_kept(value, reader, at)
        return value

    def _built(self, whole: Any, at: Any) -> Any:
        if not isinstance(whole, tuple):
            return whole
        target, args, named = whole
        return put(self.graph, at, target, *(self._built(x, at) for x in args), **named)

    def _check_same(self, a: Any, b: Any, reads_a: Any, reads_b: Any) -> None:
        """Raise unless both are the same, also if they are computed twice; of what ``reads`` them."""
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
            for x, y in zip(a, b, strict=True):
                self._check_same(x, y, reads_a, reads_b)
        elif not hasattr(a, "meta") or not hasattr(b, "meta"):
            if type(a) is not type(b) or a != b:
                raise _Other
        elif a is b:
            self._check_kept(a, reads_a, reads_b)
        else:
            if not (_is_call(a) and _is_call(b)) or a.target != b.target or a.kwargs != b.kwargs:
                raise _Other
            if writes(a) or draws(a):
                raise _Other
            self._check_same(a.args, b.args, a, b)

    def _check_kept(self, node: Any, first: Any, last: Any) -> None:
        """Raise if what ``node`` makes may be written to between two that read it."""
        start, end = sorted((self._order[first], self._order[last]))
        place = memory(node)
        if any(start < i < end and place == written for i, written in self._writes):
            raise _Other


def _is_call(node: Any) -> bool:
    return getattr(node, "op", "") == "call_function"


def _behind(at: Any) -> int:
    """How many axes of what is written to lie behind those of the condition."""
    target, indices, _ = at.args
    (condition,) = (i for i in indices if i is not None)
    return len(dims(target.meta["val"])) - (len(indices) - 1) - len(dims(condition.meta["val"]))


def _drops_ones(node: Any) -> bool:
    """Whether a reshape takes away axes of one in front, and nothing else."""
    shape, made = dims(node.args[0].meta["val"]), dims(node.meta["val"])
    more = len(shape) - len(made)
    return more >= 0 and shape == (*(1,) * more, *made)


def _acts(node: Any) -> bool:
    """Whether a node that nobody reads does something."""
    return node.op == "output" or node.is_impure()
