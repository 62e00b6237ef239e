"""The average width of a graph: how many heavy operators may run at a time (arXiv 1908.04705, section 4)."""

from dataclasses import dataclass

from bslite.ops import Kind
from bslite.spec import ModelSpec


@dataclass(frozen=True)
class Width:
    """``heavy`` operators, and how many of them the longest ``chain`` has."""

    heavy: int
    chain: int

    @property
    def average(self) -> float:
        """Heavy operators over the longest chain of them; 1 for a graph without any."""
        return self.heavy / self.chain if self.chain else 1.0

    @property
    def pools(self) -> int:
        """The width as a whole number, at least 1; halves are rounded up."""
        return max(1, int(self.average + 0.5))


def width_of(spec: ModelSpec) -> Width:
    """The width of a model as it is described.

    Heavy are the operators that sum products: convolutions, matrix products, attention, recurrent layers.
    """
    depth = dict.fromkeys((i.name for i in spec.inputs), 0)  # heavy operators on the longest way to a value
    heavy = 0
    for node in spec.nodes:
        mine = int(node.declaration.kind is Kind.CONTRACTION)
        depth[node.name] = mine + max((depth[name] for name in node.inputs), default=0)
        heavy += mine
    return Width(heavy, max(depth.values(), default=0))
