"""What a report says of a part."""

from dataclasses import dataclass

from bslite.dropin.blueprint import Blueprint
from bslite.dropin.costs import does_work
from bslite.dropin.partition import Part
from bslite.frontends.torch.names import call_of


@dataclass(frozen=True)
class PartReport:
    """A part that bslite can compute. ``seconds``: bslite's and torch's, if they were measured."""

    first: str
    last: str
    operations: int
    share: float  # of the flops of the graph
    seconds: tuple[float, float] | None
    runs_in: str

    def line(self, measured: str) -> str:
        """For people; ``measured``: what the seconds are called."""
        text = (
            f"  {self.runs_in}: {self.operations} operations, {self.first} to {self.last}, "
            f"{100 * self.share:.1f} % of the flops"
        )
        if self.seconds is not None:
            ours, theirs = self.seconds
            text += f"; {measured} {1e3 * ours:.3f} ms, torch {1e3 * theirs:.3f} ms"
        return text


def part_report(part: Part, blueprint: Blueprint) -> PartReport:
    """The report of a part, as far as it has been measured."""
    paths = list(dict.fromkeys(call_of(n).path for n in part.nodes))
    return PartReport(
        paths[0] or str(part.nodes[0]),
        paths[-1] or str(part.nodes[-1]),
        sum(map(does_work, part.nodes)),
        part.flops / max(1, blueprint.flops),
        part.seconds,
        "bslite" if part.in_bslite else "torch",
    )
