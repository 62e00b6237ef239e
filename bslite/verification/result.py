"""What a verification found: a table, plain data, a verdict."""

from dataclasses import asdict, dataclass
from typing import Any

from bslite.verification.checks import FACTOR, Check


@dataclass(frozen=True)
class Verification:
    """What `verify` found. ``str()`` is a table, ``as_dict()`` plain data, ``passed`` the verdict."""

    model: str
    layers: tuple[Check, ...]
    outputs: tuple[Check, ...]
    repeatable: bool  # two runs gave the same bits
    threads_agree: bool | None  # one thread and all threads gave the same bits; None: there are no threads
    backend: str = "cpu"
    peer: str = "float32"  # what errors are compared with

    @property
    def passed(self) -> bool:
        """Whether every layer and output is within its bound and two runs gave the same bits."""
        return self.repeatable and self.threads_agree is not False and not self.failures

    @property
    def failures(self) -> list[Check]:
        """The layers, then the outputs, that did not pass."""
        return [check for check in (*self.layers, *self.outputs) if not check.passed]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        derived = [
            [{**asdict(c), "bound": c.bound, "passed": c.passed} for c in checks]
            for checks in (self.layers, self.outputs)
        ]
        return {**asdict(self), "layers": derived[0], "outputs": derived[1], "passed": self.passed}

    def __str__(self) -> str:
        header = ("layer", "op", "output", "bslite", self.peer, "torch", "")
        body = [_cells(c) for c in self.layers]
        tail = [_cells(c) for c in self.outputs]
        widths = [max(map(len, column)) for column in zip(header, *body, *tail, strict=True)]
        rule = tuple("-" * w for w in widths)
        rows = [header, rule, *body, rule, *tail]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        title = f"{self.model}: relative L2 error against the float64 reference"
        return "\n".join([title, *lines, "", self.summary()])

    def summary(self) -> str:
        """The verdict in a few lines."""
        failed = self.failures
        verdict = "passed" if self.passed else "FAILED"
        again = f"same bits from run to run: {_word(self.repeatable)}"
        if self.threads_agree is not None:
            again += f"; from one thread and all: {_word(self.threads_agree)}"
        where = "" if self.backend == "cpu" else f" on {self.backend}"
        lines = [
            f"{verdict}: {len(self.layers)} layers and {len(self.outputs)} output(s){where},"
            f" {len(failed)} out of bound (at most {FACTOR:g} times the error of {self.peer})",
            again,
        ]
        if not self.repeatable:
            lines.append(
                "answers that differ from run to run cannot be compared: does the model draw numbers?"
            )
        if failed:
            first = failed[0]
            why = f"error {first.error:.2e}, bound {first.bound:.2e}"
            if first.exactly:
                why = "not what the reference has"
            elif not first.specials:
                why = "NaN or infinity where the reference has none, or the reverse"
            lines.append(f"first out of bound: {first.name} ({first.op}): {why}")
        return "\n".join(lines)


def _cells(check: Check) -> tuple[str, ...]:
    shape = str(list(check.shape))
    torch = "" if check.torch_error is None else f"{check.torch_error:.1e}"
    verdict = "" if check.passed else "FAIL"
    return check.name, check.op, shape, f"{check.error:.1e}", f"{check.reference_error:.1e}", torch, verdict


def _word(value: bool) -> str:
    return "yes" if value else "NO"
