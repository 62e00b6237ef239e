"""Lengths of sequences that share a padded batch, checked before they are used."""

from collections.abc import Mapping, Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import INTEGERS, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape


class SequenceLengths(Op):
    """The lengths ``[N]`` unchanged, checked to lie between 1 and T of ``x [T, N, ...]``.

    The elements of x are not read. A length outside is an error while running. torch's
    ``pack_padded_sequence`` makes the same check.
    """

    name = "sequence_lengths"
    kind = Kind.MOVEMENT
    arity = (2, 2)
    attrs = (
        Attr("sorted", a.boolean, False, "they must not increase"),
        Attr("whole", a.boolean, False, "the longest must be T"),
        Attr("longest", a.optional(a.integer(1)), None, "none may be longer; None: T"),
    )
    may_fail = True
    torch_name = "pack_padded_sequence"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[0] not in INTEGERS:
            raise SpecError(f"op 'sequence_lengths': the lengths (input 0) are {ins[0]}, expected int64")
        return ins[0]

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        lengths, x = ins
        checks.rank_at_least(self.name, x, 2, "a second input [T, N, ...]")
        if lengths != (x[1],):
            raise SpecError(
                f"op 'sequence_lengths': the lengths are {list(lengths)}, expected [{x[1]}] for x {list(x)}"
            )
        return lengths

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return False  # the batch of x is not axis 0

    def cases(self) -> Sequence[Case]:
        def case(label: str, t: int, n: int, least: int = 1, most: int = 0, **attrs: object) -> Case:
            shapes, dtypes = [(n,), (t, n, 3)], ["int64", "float32"]
            return Case(label, shapes, attrs=attrs, dtypes=dtypes, integers=(least, (most or t) + 1))

        return [
            case("one", 1, 1),
            case("any order", 7, 5),
            case("sorted, of one length", 4, 3, 4, sorted=True),
            case("whole, of one length", 4, 3, 4, whole=True),
            case("none longer than 3", 7, 21, most=3, longest=3),
        ]
