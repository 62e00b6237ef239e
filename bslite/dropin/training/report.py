"""What of a wrapped module trains where, what is saved between the passes, and what is computed again."""

from dataclasses import dataclass

from bslite.dropin.diagnosis.reporting_parts import PartReport, part_report
from bslite.dropin.reasons import SLOWER, Unsupported, grouped
from bslite.dropin.runner import Runner
from bslite.dropin.training.trainer import Shapes, Trained

MOST = 5  # values that the text names


@dataclass(frozen=True)
class TrainedReport:
    """A part, and the values that its forward pass saves for its backward pass, with their bytes, and those
    that the backward pass makes again. Both are empty until it has been called with gradients.
    """

    part: PartReport
    saved: tuple[tuple[str, int], ...]
    remade: tuple[str, ...]

    @property
    def saved_bytes(self) -> int:
        """Of all saved values."""
        return sum(size for _, size in self.saved)


@dataclass(frozen=True)
class TrainingReport:
    """One kind of call in training: the sizes, and how it runs. ``reason``: why torch runs all of it."""

    shapes: Shapes
    parts: tuple[TrainedReport, ...]
    unsupported: tuple[Unsupported, ...]
    torch_share: float
    reason: str

    def lines(self) -> list[str]:
        """For people."""
        sizes = ", ".join(str(list(shape)) for shape in self.shapes)
        lines = [f"training, inputs {sizes}: {100 * self.torch_share:.1f} % of the flops in torch"]
        if self.reason:
            lines.append(f"  runs in torch: {self.reason}")
        for each in self.parts:
            lines.append(each.part.line("both passes measured"))
            if each.part.runs_in == "bslite" and each.saved:
                largest = sorted(each.saved, key=lambda item: -item[1])[:MOST]
                names = ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in largest)
                size = f"{each.saved_bytes / 1e6:.2f} MB"
                lines.append(f"    saves {len(each.saved)} values, {size}, the largest {names}")
            if each.part.runs_in == "bslite" and each.remade:
                more = f" and {len(each.remade) - MOST} more" if len(each.remade) > MOST else ""
                lines.append(f"    makes again {', '.join(each.remade[:MOST])}{more}")
        return [*lines, *(f"  torch: {item}" for item in self.unsupported)]


def training_reports(runner: Runner) -> tuple[TrainingReport, ...]:
    """One for each kind of call in training."""
    made = [] if runner.trainer is None else list(runner.trainer.made.values())
    return tuple(
        _of(each) if isinstance(each, Trained) else TrainingReport(each.shapes, (), (), 1.0, each.reason)
        for each in made
    )


def _of(trained: Trained) -> TrainingReport:
    slower, blueprint = trained.slower(), trained.blueprint
    parts = []
    for part, own in zip(blueprint.parts, trained.parts, strict=True):
        halves = own.halves
        saved = () if halves is None else tuple((value.value, value.bytes) for value in halves.saved)
        remade = () if halves is None else halves.remade
        parts.append(TrainedReport(part_report(part, blueprint), saved, remade))
    reason, share = SLOWER if slower else "", blueprint.torch_share
    return TrainingReport(trained.shapes, tuple(parts), grouped(blueprint.refused), share, reason)
