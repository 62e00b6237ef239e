"""A trial in words: lines of at most 80 characters, few enough for one screen.

Only lines to paste may be longer, where they hold a long path.
"""

import json
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bslite.cli.rivals import ENGINE
from bslite.cli.trial.peers import ANOTHER, KNOWN, Peer
from bslite.cli.trial.result import EVEN, Trial

WIDTH, LABEL = 80, 8
MOST_PORTS, MOST_LACKING = 3, 14  # inputs or outputs that are named; lines on what is lacking
MOST_LINES = 3  # that one sentence may take


@dataclass(frozen=True)
class Source:
    """Where the model came from: ``shell`` words that name it, and lines of ``python`` that run it on x."""

    shell: str
    python: Sequence[str]

    @classmethod
    def file(cls, path: Path) -> "Source":
        """A file."""
        return cls(shlex.quote(str(path)), (f"import bslite; y = bslite.compile({_text(path)})(x)",))

    @classmethod
    def architecture(cls, name: str, weights: Path | None) -> "Source":
        """A named architecture; without weights, the lines say where to put some."""
        held = str(weights) if weights else "w.pth"
        given = f" --weights {shlex.quote(held)}" if weights else ""
        lines = (
            f"import bslite; s = bslite.from_state_dict({_text(name)}, {_text(held)})",
            "y = bslite.compile(s)(x)",
        )
        return cls(f"--arch {name}{given}", lines)


def screen(trial: Trial, source: Source) -> str:
    """The screen of a model that loads."""
    lines = textwrap.wrap(f"{trial.title}: {_headline(trial)}", WIDTH, max_lines=2, placeholder=" ...")
    for label, text in (
        ("takes", f"{_ports(trial.takes)}; tried with {_shapes(trial.shapes)}"),
        ("gives", _ports(trial.gives)),
        ("loads", _loads(trial)),
        ("error", _error(trial)),
        ("bits", _bits(trial)),
        ("memory", _memory(trial)),
    ):
        lines += _row(label, text)
    for i, text in enumerate(_times(trial)):
        lines += [f"{'' if i else 'time':{LABEL}}{_short(text, WIDTH - LABEL)}"]
    return "\n".join([*lines, *_next(trial, source)])


def lacking(title: str, message: str, path: str) -> str:
    """The screen of an ONNX file that does not load; ``message``: below its first line, what bslite lacks, a
    line for each operator.
    """
    lines = [_short(f"{title}: does NOT load, bslite lacks some of its operators", WIDTH)]
    found = [line.strip() for line in message.splitlines()[1:] if line.strip()]
    for line in found[:MOST_LACKING]:
        lines += _row("lacks", line, 2)
    if len(found) > MOST_LACKING:
        lines += _row("", f"and {len(found) - MOST_LACKING} more; --json FILE has them all")
    return "\n".join(
        [
            *lines,
            *_row("instead", "let ONNX's reference evaluator, which is slow, run what is lacking:"),
            f"{'':{LABEL}}from bslite.onnx.backend import prepare",
            f"{'':{LABEL}}made = prepare({_text(path)}, fallback='warn').run([x])",
            *_row("", "or change the model: docs/onnx.md lists the operators that there are"),
            *_row("", "or report it, with these lines and what `bslite info` prints"),
        ]
    )


def _headline(trial: Trial) -> str:
    if not trial.passed:
        wrong = ["error out of bound"] * bool(trial.checked.failures) + ["bits differ"] * (
            not trial.same_bits
        )
        return f"WRONG, {' and '.join(wrong)}"
    right = [p.name for p in trial.peers if p.name in trial.ratios and not _another(p)]
    if not right:
        return "right"
    best = min(right, key=lambda name: trial.ratios[name])
    ratio = trial.ratios[best]
    busy = ", on a busy machine" if trial.busy else ""
    if EVEN[0] <= ratio <= EVEN[1]:
        return f"right, and about as fast as {best}{busy}"
    if ratio > 1:
        return f"right, and {ratio:.2f} times as fast as {best}{busy}"
    return f"right, but takes {1 / ratio:.2f} times as long as {best}{busy}"


def _beside(ratio: float) -> str:
    if EVEN[0] <= ratio <= EVEN[1]:
        return f"bslite is about as fast ({ratio:.2f})"
    if ratio > 1:
        return f"bslite is {ratio:.2f} times as fast"
    return f"bslite takes {1 / ratio:.2f} times as long"


def _another(peer: Peer) -> bool:
    return peer.apart is not None and not peer.apart <= ANOTHER


def _loads(trial: Trial) -> str:
    inside = [line for line in trial.pieces if line.strip().startswith("engine")]
    outside = len(trial.pieces) - len(inside)
    how = "in one piece" if len(trial.pieces) == 1 else f"in {len(trial.pieces)} pieces"
    if outside:
        how += f", {outside} of them outside the engine (bslite info says why)"
    return f"yes, in {trial.loading:.1f} s, the first answer {trial.first:.1f} s later; {how}"


def _error(trial: Trial) -> str:
    worst, checked = trial.worst, trial.checked
    if worst is None:
        return "there is no output"
    measure = "torch's" if worst.torch_error is not None else "float32's"
    about = f"{worst.error:.1e} against float64, at most {worst.bound:.1e} (4 times {measure})"
    if checked.failures:
        first = checked.failures[0]
        about = f"OUT OF BOUND: {about}; first {_short(first.name, 30)}: {first.error:.1e}"
        return f"{about}; {len(checked.failures)} of {len(checked.layers)} layers and outputs"
    return f"{about}; all {len(checked.layers)} layers are within theirs"


def _bits(trial: Trial) -> str:
    same = [str(n) for n, yes in trial.on_threads.items() if yes]
    other = [str(n) for n, yes in trial.on_threads.items() if not yes]
    told = [] if trial.checked.repeatable else ["DIFFERENT from run to run"]
    if other:
        told.append(f"DIFFERENT on {', '.join(other)} threads")
    elif trial.checked.repeatable:
        told.append(f"the same from run to run and on {', '.join(same)} threads")
    return "; ".join([*told, trial.batch.told])


def _memory(trial: Trial) -> str:
    held = {name: _bytes(n) for name, n in trial.memory.items()}
    parts = ", ".join(f"{name} {text}" for name, text in held.items())
    return f"{_bytes(sum(trial.memory.values()))} beside the parameters' {_bytes(trial.parameters)}: {parts}"


def _times(trial: Trial) -> Iterator[str]:
    times, width = trial.medians, max(map(len, [ENGINE, *(p.name for p in trial.peers)]))
    rounds = len(trial.rounds[ENGINE])
    on = f"{trial.threads} thread{'s' * (trial.threads != 1)}"
    busy = "; BUSY machine" if trial.busy else ""
    yield f"{ENGINE:{width}}  {_seconds(times[ENGINE]):>9}  median of {rounds} rounds, {on}{busy}"
    for peer in trial.peers:
        if peer.name not in times:
            yield f"{peer.name:{width}}  {'-':>9}  {peer.why}"
            continue
        told = _beside(trial.ratios[peer.name])
        told += "; ANOTHER answer" if _another(peer) else ""
        yield f"{peer.name:{width}}  {_seconds(times[peer.name]):>9}  {told}"
    if not trial.peers:
        names = " ".join(sorted(KNOWN[name] for name in trial.missing))
        yield f"no peer to compare with: pip install {names}" if names else "no peer was asked for"


def _next(trial: Trial, source: Source) -> list[str]:
    """Three lines to paste."""
    names = [port.split(":")[0] for port in trial.takes]
    given = ", ".join(n if n.isidentifier() else f"x{i}" for i, n in enumerate(names, 1))
    python = [line.replace("(x)", f"({given})") if len(names) > 1 else line for line in source.python]
    slower = any(ratio < EVEN[0] for ratio in trial.ratios.values())
    shell = [f"bslite {'explain' if trial.passed else 'verify'} {source.shell}"]
    shell.append("bslite calibrate" if slower or not trial.passed else f"bslite serve {source.shell}")
    lines = [*python, *shell][:3]
    return [f"{'' if i else 'next':{LABEL}}{line}" for i, line in enumerate(lines)]


def _row(label: str, text: str, most: int = MOST_LINES) -> list[str]:
    made = textwrap.wrap(text, WIDTH - LABEL, max_lines=most, placeholder=" ...", break_on_hyphens=False) or [
        ""
    ]
    return [f"{label if i == 0 else '':{LABEL}}{line}".rstrip() for i, line in enumerate(made)]


def _ports(ports: Sequence[str]) -> str:
    more = f" and {len(ports) - MOST_PORTS} more" if len(ports) > MOST_PORTS else ""
    return ", ".join(_short(p, 60) for p in ports[:MOST_PORTS]) + more


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    more = " ..." if len(shapes) > MOST_PORTS else ""
    return ", ".join(str(list(s)) for s in shapes[:MOST_PORTS]) + more


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _text(value: object) -> str:
    """As a string of Python."""
    return json.dumps(str(value), ensure_ascii=False)


def _seconds(s: float) -> str:
    if s >= 1:
        return f"{s:.2f} s"
    return f"{1e3 * s:.1f} ms" if s >= 1e-3 else f"{1e6 * s:.0f} µs"


def _bytes(n: int) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e5 else f"{n / 1e3:.1f} kB"
