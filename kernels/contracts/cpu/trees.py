"""What a forest's layout says in numbers (`kernels/cpu/rows/trees.py`): it is no step of a plan."""

from enum import IntEnum

WALKERS = 8  # that go down trees together: the roots are followed by one less
LEAVES = 64  # of a tree at most whose splits have masks: a bit for each
NARROW = 12  # splits of a tree, on average, up to which all rows go split by split
CHOOSES = 30  # the bit of a node's feature that says that it asks for a set

#: Cells of the record whose address the kernel takes, of eight bytes each: those of `walk.JOB` that the
#: entries of a job know keep their places, of no steps; "walkers" counts the blocks of rows that threads have
#: claimed, "left" is scratch memory, a word for each tree for each of "entries" threads. "abreast": the rows
#: that go down trees node by node together; more than a "block" has where all go split by split.
FOREST = (
    "nodes", "steps", "roots", "counters", "trees", "rows", "walkers", "x", "row_bytes", "shares", "took",
    "targets", "starts", "ids", "weights", "sums", "hits", "how", "bits", "members", "ranges", "block",
    "depth", "finish", "transform", "rule", "base", "scores", "places",
    "splits", "columns", "column_starts", "column_sets", "used", "exits", "exit_starts", "left", "entries",
    "abreast",
)  # fmt: skip


class Said(IntEnum):
    """What becomes of the weights of the leaves that a row reaches."""

    SUM = 0
    MIN = 1
    MAX = 2


class Finish(IntEnum):
    """What sums become: they are left as they are; each is a score; the first is that of the second of two
    classes, the other's its opposite; each is that of a class.
    """

    LEAVE = 0
    EACH = 1
    LONE = 2
    CLASSES = 3


class Transform(IntEnum):
    """What is applied to scores."""

    NONE = 0
    LOGISTIC = 1
    SOFTMAX = 2


class Chosen(IntEnum):
    """The class of a row: the first of the largest score; the second if its sum is above the cut."""

    FIRST = 0
    ABOVE = 1


class Other(IntEnum):
    """The score of the first of two classes, where there is one score alone: its opposite; one less it."""

    OPPOSITE = 0
    REST = 1
