"""Feed an LSTM token by token: each answer when its token arrives, with the bits of the whole sequence.

    pip install -c constraints.txt -e "."
    python examples/token_by_token.py --steps 200

The weights are random. The script prints the time of a step and whether every step had the bits that the
whole sequence gives at once. It then takes a step back: a state can be kept and set.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

import bslite

INPUTS = 32


def lstm(hidden: int, seed: int = 0) -> bslite.ModelSpec:
    """An LSTM of random weights under torch's names; it takes x [N, T, 32]."""
    rng = np.random.default_rng(seed)
    rows = 4 * hidden  # four gates
    shapes = {"weight_ih_l0": (rows, INPUTS), "weight_hh_l0": (rows, hidden), "bias_ih_l0": (rows,)}
    shapes["bias_hh_l0"] = (rows,)
    weights = {name: rng.standard_normal(shape, np.float32) / 8 for name, shape in shapes.items()}
    return bslite.from_state_dict("lstm", weights, batch_first=True)


def main(arguments: Sequence[str] | None = None) -> bool:
    """Run step by step and at once, print; returns whether the bits are the same."""
    parser = argparse.ArgumentParser(description="An LSTM, token by token.")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)

    spec = lstm(options.hidden)
    tokens = np.random.default_rng(1).standard_normal((1, options.steps, INPUTS), np.float32)
    whole, _, _ = bslite.run(spec, tokens)

    session = bslite.Session(spec, batch=1)
    made, seconds = [], []
    for t in range(options.steps):
        kept = session.state  # so that the last step can be taken back
        start = time.perf_counter()
        y, _, _ = session.step(tokens[:, t])
        seconds.append(time.perf_counter() - start)
        made.append(y)
    same = bool(np.array_equal(np.stack(made, 1), whole))
    print(f"{spec.name} of {options.hidden} units: {1e6 * np.median(seconds):.0f} µs a step (median)")
    print(f"the bits of the whole sequence: {'yes' if same else 'NO'}")

    session.state = kept
    again, _, _ = session.step(tokens[:, -1])
    print(f"the last step once more, from the state before it: {np.array_equal(again, made[-1])}")
    return same and bool(np.array_equal(again, made[-1]))


if __name__ == "__main__":
    main()
