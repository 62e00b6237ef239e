"""The comparison of precisions, and its command."""

import subprocess
import sys

import pytest

from benchmarks.peers.nets import import_models

pytest.importorskip("torch")


def test_it_says_what_each_precision_takes() -> None:
    import_models()  # skips the test where torchvision is not installed
    given = ["--nets", "squeezenet1_1", "--layers", "--rounds", "1", "--seconds", "0.01"]
    command = [sys.executable, "-m", "benchmarks.precisions", *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    (layer,) = (line.split("|") for line in lines if line.startswith("| features.6.expand3x3 |"))
    assert layer[2].strip().endswith("conv")
    assert all(float(took) > 0 for took in layer[3:5])
    (found,) = (line for line in lines if line.startswith("| squeezenet1_1 |"))
    ieee, float32, ratio = map(float, found.split("|")[2:5])
    assert ratio == pytest.approx(ieee / float32, abs=0.02 * ratio + 0.01)
