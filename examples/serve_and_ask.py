"""Start a server, ask it a few times, stop it.

    pip install -c constraints.txt -e ".[cli,serve]"
    python examples/serve_and_ask.py

The script saves a small LSTM, starts `bslite serve` with it on a free port of this machine, waits until it
is ready, asks it by plain HTTP, and stops it. It prints the first number of each answer beside the one that
`bslite.run` gives here: they are equal.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import bslite


def model() -> bslite.ModelSpec:
    """A small LSTM of random weights; it takes x [N, T, 4]."""
    rng = np.random.default_rng(0)
    shapes = {"weight_ih_l0": (32, 4), "weight_hh_l0": (32, 8), "bias_ih_l0": (32,), "bias_hh_l0": (32,)}
    weights = {name: rng.standard_normal(shape, np.float32) / 4 for name, shape in shapes.items()}
    return bslite.from_state_dict("lstm", weights, batch_first=True)


def ready(server: subprocess.Popen) -> str:
    """The model's address, once it is warm; until then the server says on stderr what it does."""
    said = ""
    for line in server.stderr:
        said += line
        if found := re.match(r"Ready: (\S+)", line):
            return found[1]
    raise SystemExit(f"the server ended:\n{said}")


def ask(url: str, x: np.ndarray) -> np.ndarray:
    """The model's output "y", by the Open Inference Protocol."""
    given = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    body = json.dumps({"inputs": [given]}).encode()
    with urllib.request.urlopen(f"{url}/infer", body, timeout=30) as answer:
        [y] = [out for out in json.load(answer)["outputs"] if out["name"] == "y"]
    return np.array(y["data"], np.float32).reshape(y["shape"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, ask, stop; returns the server's exit code."""
    parser = argparse.ArgumentParser(description="A server of bslite, and a client.")
    parser.add_argument("--requests", type=int, default=3)
    options = parser.parse_args(arguments)

    spec = model()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lstm.safetensors"
        spec.save(file)
        command = [sys.executable, "-m", "bslite", "serve", str(file), "--port", "0", "--no-access-log"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                url = ready(server)
                print(f"ready at {url}")
                for seed in range(options.requests):
                    x = np.random.default_rng(seed).standard_normal((1, 5, 4), np.float32)
                    y, alone = ask(url, x), bslite.run(spec, x)[0]
                    print(
                        f"{y.flat[0]:.8f} by the server, {alone.flat[0]:.8f} here: {np.array_equal(y, alone)}"
                    )
            finally:
                server.terminate()  # it answers what it has accepted, then ends
                server.stderr.read()
        print(f"stopped with {server.returncode}")
    return server.returncode


if __name__ == "__main__":
    main()
