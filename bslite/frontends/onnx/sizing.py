"""Which of the open sizes of an ONNX model stay free in a ModelSpec, and which of them are one size."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bslite.frontends.onnx.inputs import GraphInput
from bslite.ops import Shape

BATCH = "N"
#: Labels by which exporters say "the batch" or nothing at all: tf2onnx numbers them input by input.
ANONYMOUS = re.compile(r"unk__\d+|dim_?\d*|.*dynamic.*|.*batch.*|[nb]|bs|.*\.0", re.IGNORECASE)
#: Free sizes are multiples of this where a model does not take every size: it halves images five times.
COARSE = 32
#: What tables of positions have, or more, in most models.
POSITIONS = 512
#: Sizes other than the batch up to which each is tried as the only fixed one.
MOST_ALONE = 4


@dataclass(frozen=True)
class Sizing:
    """The free sizes of a model. ``names``: the file's labels of sizes that stay free -> bslite's names.

    Labels with one name are one size; the sizes of other labels are fixed to the example's. Free sizes but
    the batch are multiples of ``step``, and at most ``most`` if that is not 0.
    """

    names: tuple[tuple[str, str], ...]
    step: int = 1
    most: int = 0

    def shape(self, declared: GraphInput, example: Shape) -> tuple[int | str, ...]:
        """The input's sizes and names of free ones."""
        if declared.shape is None:
            return example
        names = dict(self.names)
        return tuple(
            names.get(d, n) if isinstance(d, str) else d for d, n in zip(declared.shape, example, strict=True)
        )

    def fits(self, declared: Sequence[GraphInput], shapes: Sequence[Shape]) -> bool:
        """Whether concrete shapes, which fit the file's fixed sizes, are among those that it leaves free."""
        known: dict[str, int] = {}
        for i, given in zip(declared, shapes, strict=True):
            for want, got in zip(self.shape(i, given), given, strict=True):
                if not isinstance(want, str):
                    continue
                if known.setdefault(want, got) != got:
                    return False
                if want != BATCH and (got % self.step or 0 < self.most < got):
                    return False
        return True

    def within(self, declared: Sequence[GraphInput], shapes: Sequence[Shape]) -> "Iterator[Sizing]":
        """The same for sizes up to the positions of a table that is cut to the length."""
        free = {d for d, name in self.names if name != BATCH}
        sizes = [
            n
            for i, shape in zip(declared, shapes, strict=True)
            for d, n in zip(i.shape or shape, shape, strict=True)
            if d in free
        ]
        if sizes:
            least = 1 << (max(sizes) - 1).bit_length()
            for most in dict.fromkeys((max(least, POSITIONS), max(least, COARSE))):
                yield replace(self, most=most)


#: Every size is the example's.
FIXED = Sizing(())


def sizings(declared: Sequence[GraphInput]) -> list[Sizing]:
    """The sizings to try, those that leave the most free first, `FIXED` last.

    The batches of inputs are one size first, where their labels say nothing else, and then each their own;
    then sizes at the same place of inputs of one rank are one. Where there are a few other sizes than the
    batch, each of them is fixed alone: readers of text lines take any width, of one height.
    """
    together = _named(declared, lambda label, rank, axis: BATCH if _batch(label, axis) else None)
    apart = _named(declared, lambda label, rank, axis: None)
    placed = _named(declared, lambda label, rank, axis: BATCH if _batch(label, axis) else (rank, axis))
    all_free = list(dict.fromkeys((together, apart, placed)))
    batches = [tuple(pair for pair in names if pair[1] == BATCH) for names in (together, apart)]
    made = [Sizing(names) for names in all_free]
    made += [Sizing(names, COARSE) for names in all_free if names not in batches]
    made += [Sizing(names) for names in _all_but_one(together)]
    made += [Sizing(names) for names in batches]
    return [*(s for s in dict.fromkeys(made) if s.names), FIXED]


def _all_but_one(names: tuple[tuple[str, str], ...]) -> list[tuple[tuple[str, str], ...]]:
    """The names without those of one size other than the batch, for each of a few such sizes."""
    others = dict.fromkeys(name for _, name in names if name != BATCH)
    if not 2 <= len(others) <= MOST_ALONE:
        return []
    return [tuple(pair for pair in names if pair[1] != fixed) for fixed in others]


def _batch(label: str, axis: int) -> bool:
    return axis == 0 and ANONYMOUS.fullmatch(label) is not None


def _named(
    declared: Sequence[GraphInput], alike: Callable[[str, int, int], Hashable | None]
) -> tuple[tuple[str, str], ...]:
    """bslite's names of all labels: the first at axis 0 is the batch. Labels are one size where ``alike``, of
    label, rank and axis, says the same of them, unless one input has both.
    """
    within = [(i.shape or ()) for i in declared]
    leader: dict[str, str] = {}

    def root(label: str) -> str:
        while leader.get(label, label) != label:
            label = leader[label]
        return label

    seen: dict[Hashable, str] = {}
    labels: list[str] = []
    batch: str | None = None
    for shape in within:
        for axis, label in enumerate(shape):
            if not isinstance(label, str):
                continue
            labels.append(label)
            batch = label if batch is None and axis == 0 else batch
            key = alike(label, len(shape), axis)
            a, b = root(seen.setdefault(key, label) if key is not None else label), root(label)
            both = any({a, b} <= {root(d) for d in s if isinstance(d, str)} for s in within)
            if a != b and not both:
                leader[b] = a
    return _spelt(dict.fromkeys(labels), root, batch)


def _spelt(
    labels: Mapping[str, None], root: Callable[[str], str], batch: str | None
) -> tuple[tuple[str, str], ...]:
    names: dict[str, str] = {}
    for label in labels:
        first = root(label)
        if first not in names:
            name = BATCH if batch is not None and first == root(batch) else first
            while name in names.values() or (name == BATCH and (batch is None or first != root(batch))):
                name += "_"
            names[first] = name
    return tuple((label, names[root(label)]) for label in labels)
