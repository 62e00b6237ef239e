"""`report`: what of a wrapped module ran where, and why."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from bslite.dropin import place
from bslite.dropin.blueprint import Blueprint
from bslite.dropin.diagnosis.reporting_parts import PartReport, part_report
from bslite.dropin.kinds import Kind
from bslite.dropin.reasons import Unsupported, grouped
from bslite.dropin.runner import Runner, runner_of
from bslite.dropin.training.report import TrainingReport, training_reports
from bslite.engines.cpu.threads import decided
from bslite.frontends.torch.checks import tensors as named_tensors

MOST = 12  # layers inside a module that are shown
FEW = 3  # sizes that are shown one by one


@dataclass(frozen=True)
class KindReport:
    """One specialisation: the sizes it has served, and how it runs. ``reason``: why torch runs all of it.

    ``open_shapes``: the inputs of its trace, free sizes by name, if the trace serves other kinds, too.
    ``answers``: what its forward has to be told, where it asks for values, for the trace to hold.
    ``autocast``: the dtype of that around the call, if there is one.
    """

    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    fixed_batch: str
    parts: tuple[PartReport, ...]
    unsupported: tuple[Unsupported, ...]
    torch_share: float
    reason: str
    open_shapes: tuple[tuple[int | str, ...], ...] = ()
    answers: tuple[bool | int, ...] = ()
    autocast: str = ""


@dataclass(frozen=True)
class Report:
    """``str()`` is for people, ``as_dict()`` plain data."""

    model: str
    fallback: str
    tune: bool
    kinds: tuple[KindReport, ...]
    calls_in_torch: dict[str, int]  # reason -> calls
    weights_followed: int
    device: str = "cpu"  # that the module is on
    training: tuple[TrainingReport, ...] = ()  # calls in training mode, or with gradients
    threads: str = ""  # how many run it on the CPU, and what decided it
    precision: str = "float32"
    inside: "tuple[tuple[str, Report], ...]" = ()  # of layers that run for themselves, by their paths

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        where = "" if self.device == "cpu" else f" on {self.device}"
        lines = [f"{self.model}: optimized by bslite{where}, fallback={self.fallback!r}, tune={self.tune}"]
        if self.threads:
            lines.append(f"threads: {self.threads}")
        if self.precision != "float32":
            lines.append(f"precision: {self.precision}")
        if not self.kinds and not self.training:
            lines.append("not specialised yet: call it, or give optimize() example inputs")
        for kind in _together(self.kinds):
            lines += _kind_lines(kind)
        for kind_of_training in self.training:
            lines += kind_of_training.lines()
        for reason, calls in self.calls_in_torch.items():
            lines.append(f"{calls} call(s) ran in torch: {reason}")
        for path, own in self.inside[:MOST]:
            lines += [f"inside, {path}:", *(f"  {line}" for line in str(own).splitlines()[1:])]
        if len(self.inside) > MOST:
            lines.append(f"and inside {len(self.inside) - MOST} more layers")
        if self.weights_followed:
            lines.append(f"changes to the module followed: {self.weights_followed}")
        return "\n".join(lines)


def report(module: Any) -> Report:
    """Say which parts of ``module``, made by `bslite.optimize`, ran where and why.

    The report lists specialisations, their parts, operations that bslite lacks and their share of the flops,
    measured times, and calls that torch ran.

    Raises InputError for any other module.
    """
    return report_of(runner_of(module))


def report_of(runner: Runner) -> Report:
    """The report of a runner."""
    options = runner.options
    where = next((str(place.of(tensor)) for _, tensor in named_tensors(runner.module)), "cpu")
    return Report(
        runner.name,
        options.fallback,
        options.tune,
        tuple(_kind(k) for k in runner.kinds.made.values()),
        dict(runner.in_torch),
        runner.rebuilt,
        where,
        training_reports(runner),
        decided(options.threads) if where == "cpu" else "",
        options.precision.value,
        tuple(
            (path, report_of(own))
            for path, own in runner.inside.layers().items()
            if own.kinds.made or own.in_torch or own.trainer
        ),
    )


def _kind(kind: Kind) -> KindReport:
    shapes, blueprint = tuple(kind.shapes), kind.blueprint
    if not isinstance(blueprint, Blueprint):
        return KindReport(shapes, "", (), (), 1.0, blueprint.reason)
    reason = ""
    if not blueprint.in_bslite:
        reason = "every part is faster in torch" if blueprint.parts else "bslite has none of its operations"
    return KindReport(
        shapes,
        blueprint.capture.fixed,
        tuple(part_report(p, blueprint) for p in blueprint.parts),
        grouped(blueprint.refused),
        blueprint.torch_share,
        reason,
        blueprint.capture.open_shapes,
        blueprint.capture.answers,
        str(blueprint.capture.autocast or "").removeprefix("torch."),
    )


def _together(kinds: Sequence[KindReport]) -> list[KindReport]:
    """The kinds of call that one trace serves in the same way, as one."""
    found: list[KindReport] = []
    for kind in kinds:
        alike = (i for i, k in enumerate(found) if replace(k, shapes=kind.shapes) == kind)
        place = next(alike, None) if kind.open_shapes else None
        if place is None:
            found.append(kind)
        else:
            found[place] = replace(kind, shapes=(*found[place].shapes, *kind.shapes))
    return found


def _sizes(served: Sequence[Sequence[tuple[int, ...]]]) -> str:
    """The shapes of the inputs of each size served; of more than `FEW` sizes, from which to which each goes.
    Inputs alike, one after the other, are told once.
    """
    if len(served) > FEW:
        inputs = zip(*served, strict=True)
        ranges = [", ".join(map(_range, zip(*shapes, strict=True))) for shapes in inputs]
        told = [[f"[{own}]" for own in ranges]]
    else:
        told = [[str(list(shape)) for shape in shapes] for shapes in served]
    runs = ([(len(list(run)), shape) for shape, run in groupby(shapes)] for shapes in told)
    return "; ".join(", ".join(s if n == 1 else f"{n} x {s}" for n, s in inputs) for inputs in runs)


def _range(sizes: tuple[int, ...]) -> str:
    least, most = min(sizes), max(sizes)
    return str(least) if least == most else f"{least} to {most}"


def _kind_lines(kind: KindReport) -> list[str]:
    under = f" under autocast to {kind.autocast}" if kind.autocast else ""
    lines = [f"inputs {_sizes(kind.shapes)}{under}: {100 * kind.torch_share:.1f} % of the flops in torch"]
    if kind.reason:
        lines.append(f"  runs in torch: {kind.reason}")
    if kind.fixed_batch:
        lines.append(f"  the batch is fixed: {kind.fixed_batch}")
    if kind.open_shapes:
        free = ", ".join(f"[{', '.join(map(str, shape))}]" for shape in kind.open_shapes)
        lines.append(f"  without a trace of its own: one of {free} serves it")
    if kind.answers:
        answers = ", ".join(map(str, kind.answers[:MOST])) + (", ..." if len(kind.answers) > MOST else "")
        lines.append(f"  holds while the values that the forward asks for are: {answers}")
    lines += [part.line("measured") for part in kind.parts]
    return [*lines, *(f"  torch: {item}" for item in kind.unsupported)]
