"""``python -m benchmarks.corpus``: trained ONNX files that packages ship, or your own, beside onnxruntime."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import bslite
from benchmarks import output
from benchmarks.corpus import report
from benchmarks.corpus.measure import OURS, How, examine
from benchmarks.corpus.sources import PACKAGES, File, fetch, folder, of_packages, of_paths, once
from bslite.engines.cpu.threads import default_threads


def main(arguments: list[str] | None = None) -> int:
    """Examine every file; exit code 1 if bslite does not run one that onnxruntime runs, or is wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    threads = options.threads or default_threads()
    given = dict(np.load(options.inputs)) if options.inputs else None
    how = How(threads, 0 if options.no_time else options.rounds, given, not options.no_reference)
    run = output.Run("corpus", options, report.as_dict, report.markdown, limits=threads)
    bslite.warmup(threads=threads)
    for file in once(_files(options, run)):
        if options.only and not any(word in file.name for word in options.only):
            continue
        for result in examine(file, how):
            run.add(result, f"{result.file}, {result.inputs}: {'right' if result.right else result.failures}")
    run.finish()
    return int(any(OURS in r.failures for r in run.results))


def _files(options: argparse.Namespace, run: output.Run) -> Iterator[File]:
    if options.models:
        yield from of_paths(map(Path, options.models))
        return
    for pinned in options.packages:
        try:
            fetch(pinned, options.folder)
        except OSError as e:
            run.note(str(e))
        else:
            yield from of_packages([pinned], options.folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("models", nargs="*", help="files and folders (default: those of packages)")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, metavar="NAME==VERSION")
    parser.add_argument("--folder", type=Path, default=folder(), help="where packages are kept")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="files in whose name one of these stands")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="arrays by name, instead of guesses")
    parser.add_argument("--threads", type=int, help="of both (default: as many as bslite takes)")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each (default: 7)")
    parser.add_argument("--no-time", action="store_true", help="take no times")
    parser.add_argument(
        "--no-reference", action="store_true", help="no float64 answer, which takes plain NumPy"
    )
    output.add_options(parser, plot=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
