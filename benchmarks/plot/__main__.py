"""``python -m benchmarks.plot RESULTS.json ...``: draw results again, without measuring anything."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.plot import TABLES, draw


def main(arguments: list[str] | None = None) -> int:
    """Draw each file's picture next to it, under its name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument("--suffix", choices=(".svg", ".png"), default=".svg", help="(default: .svg)")
    options = parser.parse_args(arguments)
    for path in options.results:
        target, data = path.with_suffix(options.suffix), json.loads(path.read_text())
        if (name := data.get("benchmark")) in TABLES:
            print(f"{path}: results of {name} have a table, no picture")
            continue
        draw(data, target)
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
