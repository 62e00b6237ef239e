"""Run an ONNX model that lies inside an installed package, without the package's own code.

    pip install -c constraints.txt -e ".[onnx]" && pip install magika
    python examples/onnx_from_a_wheel.py README.md

magika tells the type of a file from its first and last bytes. Its wheel holds the model and a list of the
types that the model knows. The script reads both, runs the model in bslite, and prints the three likeliest
types of each file.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import bslite

PACKAGE, MODEL = "magika", "models/standard_v3_3"


def features(content: bytes, settings: dict[str, int]) -> np.ndarray:
    """The bytes that the model looks at, int32 ``[1, F]``: from the first one, and up to the last one."""
    block, padding = settings["block_size"], settings["padding_token"]
    first, last = settings["beg_size"], settings["end_size"]
    head = list(content[:block].lstrip()[:first])
    tail = list(content[-block:].rstrip()[-last:])
    head += [padding] * (first - len(head))
    tail = [padding] * (last - len(tail)) + tail
    return np.array([head + tail], np.int32)


def main(arguments: Sequence[str] | None = None) -> list[str]:
    """Print what the files are; returns the likeliest type of each. Nothing where the package is missing."""
    parser = argparse.ArgumentParser(description="Tell the types of files by magika's model, with bslite.")
    parser.add_argument("files", nargs="*", type=Path, default=[Path(__file__)])
    options = parser.parse_args(arguments)

    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        print(f"{PACKAGE} is not installed; install it with: pip install {PACKAGE}", file=sys.stderr)
        return []
    folder = Path(found.submodule_search_locations[0]) / MODEL
    settings = json.loads((folder / "config.min.json").read_text())
    model = bslite.compile(folder / "model.onnx")
    print(f"{model.inputs[0]} -> {model.outputs[0]}")
    answers = []
    for path in options.files:
        [scores] = model(features(path.read_bytes(), settings)).tuple()
        best = np.argsort(-scores[0])[:3]
        answers.append(settings["target_labels_space"][best[0]])
        shares = ", ".join(f"{settings['target_labels_space'][i]} {100 * scores[0, i]:.1f} %" for i in best)
        print(f"{path.name}: {shares}")
    return answers


if __name__ == "__main__":
    main()
