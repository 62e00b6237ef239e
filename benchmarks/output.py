"""What the commands write, and when: JSON and tables after every case, the plot at the end."""

import argparse
import datetime
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import origin
from bslite import cache


def parser(benchmark: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of ``python -m benchmarks.benchmark``, whose help shows the description as it is written."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{benchmark}", description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip


def add_options(parser: argparse.ArgumentParser, plot: bool = True) -> None:
    """``--json``, ``--md``, ``--note`` and, for what can be drawn, ``--plot``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured here")
    parser.add_argument("--md", type=Path, metavar="FILE", help="write the tables here")
    if plot:
        parser.add_argument("--plot", type=picture, metavar="FILE", help="draw here (.svg or .png)")
    parser.add_argument("--note", help="what the processor's name does not say of the machine; kept with it")


def picture(name: str) -> Path:
    """Path of a picture, known before hours of measuring to be one that can be drawn. For argparse."""
    path = Path(name)
    if path.suffix not in (".svg", ".png"):
        raise argparse.ArgumentTypeError(f"{name}: expected a file name ending in .svg or .png")
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(
            'plots need matplotlib: pip install -c constraints.txt -e ".[bench]"'
        )
    return path


def as_dict(results: Iterable[Any], limits: Any, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON: results that are records, with no limits."""
    return {**header, "results": [asdict(r) for r in results]}


@dataclass
class Run:
    """One run of a command: what was found so far, and the way from there to the files asked for.

    ``as_dict`` and ``markdown`` take results, ``limits`` (what the results are held against) and the header.
    """

    benchmark: str
    options: argparse.Namespace
    as_dict: Callable[..., dict[str, Any]]
    markdown: Callable[..., str]
    limits: Any = None
    results: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = time.perf_counter()
        plain = {k: v for k, v in vars(self.options).items() if not isinstance(v, Path) and k != "note"}
        #: What is to be known of a run before it begins; goes into the JSON next to the results.
        self.header: dict[str, Any] = {
            "benchmark": self.benchmark,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": origin.commit(),
            "options": {k: v for k, v in plain.items() if v is not None},
            "machine": origin.machine() | ({"note": self.options.note} if self.options.note else {}),
            "versions": origin.versions(),
        }

    def note(self, text: str) -> None:
        """Say on stderr what is being done, with the seconds passed since the start."""
        print(f"[{time.perf_counter() - self.start:6.1f} s] {text}", file=sys.stderr, flush=True)

    def add(self, result: Any, said: str | None = None) -> None:
        """One result more, `write`, and a note."""
        self.results.append(result)
        if said is not None:
            self.note(said)
        self.write()

    def write(self) -> tuple[dict[str, Any], str]:
        """The JSON and the tables, to the files asked for; and returned."""
        given = self.results, self.limits, self.header
        data, text = self.as_dict(*given), self.markdown(*given)
        if self.options.json:
            cache.write(self.options.json, json.dumps(data, indent=1) + "\n")
        if self.options.md:
            cache.write(self.options.md, text)
        return data, text

    def finish(self) -> None:
        """`write`, then draw if asked for, and print the tables."""
        data, text = self.write()
        if getattr(self.options, "plot", None):
            from benchmarks.plot import draw

            draw(json.loads(json.dumps(data)), self.options.plot)  # as it would be read from the file
        print(text)


def document(*parts: str) -> str:
    """The parts that are not empty, as paragraphs."""
    return "\n\n".join(filter(None, parts)) + "\n"


def failed(results: Iterable[Any], case: Callable[[Any], str], *others: str, what: str = "failed") -> str:
    """A line for each of the ``failures`` of results, and ``others``; empty without any."""
    lines = [f"{case(r)}, {name}: {why}" for r in results for name, why in r.failures.items()]
    listed = "\n".join(f"- {line}" for line in (*lines, *others))
    return f"What {what}:\n\n{listed}" if listed else ""


def where(header: dict[str, Any], *said: str) -> str:
    """The last lines of a report: the machine, what is ``said`` of it, commit and versions."""
    return f"{', '.join((origin.machine_line(header), *said))}. {origin.code_line(header)}"


def choice(parser: argparse.ArgumentParser, option: str, known: Iterable[str], default: Any = None) -> None:
    """An option ``--things`` that takes several of those ``known``: all by default."""
    names = list(known)
    metavar = {"--nets": "NET", "--peers": "ENGINE", "--engines": "ENGINE", "--parts": "PART"}[option]
    parser.add_argument(
        option, nargs="+", default=default or names, choices=names, metavar=metavar, help=", ".join(names)
    )
