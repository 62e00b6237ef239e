"""Ask how an LSTM would run on a machine that is not here.

    pip install -c constraints.txt -e "."
    python examples/explore_a_machine.py --machine h200 --hidden 512

A machine is a model: `h200` is a GPU, `plasticine` a spatial accelerator, `cpu-48-cores` a server; or give
the path of a JSON file. The script searches the parameters of the loop by price, and prints the best three
with where their time goes. Nothing is run or measured: all of it is predicted.
"""

import argparse
from collections.abc import Sequence

from bslite.explore import Found, Recurrent, search
from bslite.explore.machine_file import examples, explorer_of, find_machine, kind_of


def main(arguments: Sequence[str] | None = None) -> Found:
    """Search, print; returns what was found."""
    parser = argparse.ArgumentParser(description="Loop parameters of an LSTM on a modelled machine.")
    parser.add_argument("--machine", default="h200", help=f"{', '.join(examples())}, or a JSON file")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--steps", type=int, default=25)
    options = parser.parse_args(arguments)

    machine = find_machine(options.machine)
    problem = Recurrent("lstm", options.hidden, options.hidden, options.steps, batch=1)
    found = search(explorer_of(machine), problem, machine)
    print(f"{problem}, on {options.machine} ({kind_of(machine)}): {len(found.ranked)} points fit")
    for axis in found.space.axes:
        print(f"  {axis.name}: {axis.meaning}")
    for estimate in found.ranked[:3]:
        parts = sorted((p for p in estimate.parts if not p.hidden), key=lambda p: -p.seconds)
        shares = ", ".join(f"{100 * p.seconds / estimate.seconds:.0f} % {p.name}" for p in parts[:3])
        print(f"{1e6 * estimate.seconds / options.steps:.2f} µs a step: {estimate.point}")
        print(f"  {shares}")
    return found


if __name__ == "__main__":
    main()
