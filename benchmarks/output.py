"""What the commands write, and when: JSON and tables after every case, the plot at the end."""

import argparse
import datetime
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import origin
from bslite import cache


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--json``, ``--md``, ``--plot`` and ``--note``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured here")
    parser.add_argument("--md", type=Path, metavar="FILE", help="write the tables here")
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


def header(benchmark: str, options: argparse.Namespace) -> dict[str, Any]:
    """What is to be known of a run before it begins; goes into the JSON next to the results."""
    plain = {k: v for k, v in vars(options).items() if not isinstance(v, Path) and k != "note"}
    here = origin.machine()
    if options.note:
        here["note"] = options.note
    return {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": origin.commit(),
        "options": {k: v for k, v in plain.items() if v is not None},
        "machine": here,
        "versions": origin.versions(),
    }


def write(options: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    """The JSON and the tables, to the files asked for."""
    if options.json:
        cache.write(options.json, json.dumps(data, indent=1) + "\n")
    if options.md:
        cache.write(options.md, text)


def finish(options: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    """`write`, then draw if asked for, and print the tables."""
    write(options, data, text)
    if options.plot:
        from benchmarks.plot import draw

        draw(json.loads(json.dumps(data)), options.plot)  # as it would be read from the file
    print(text)


def notes() -> Callable[[str], None]:
    """A function that says on stderr what is being done, with the seconds passed since now."""
    start = time.perf_counter()

    def note(text: str) -> None:
        print(f"[{time.perf_counter() - start:6.1f} s] {text}", file=sys.stderr, flush=True)

    return note
