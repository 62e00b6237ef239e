"""Classify a picture with a network from a safetensors file.

    pip install -c constraints.txt -e ".[cli]"
    python examples/classify_picture.py
    python examples/classify_picture.py --weights trained.safetensors --picture cat.jpg

It prints the five classes with the largest share. Where there is no file of weights, the script first writes
one with seeded random weights: then the classes mean nothing. With torchvision's trained weights, saved as
safetensors, they are those of ImageNet.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from safetensors.numpy import save_file

import bslite
from bslite.cli.inputs import SAMPLE, load_image
from bslite.cli.top import top_classes
from bslite.frontends.weights.architectures.random_weights import random_state_dict


def main(arguments: Sequence[str] | None = None) -> list[tuple[int, float]]:
    """Classify, print; returns class and share of the five largest."""
    parser = argparse.ArgumentParser(description="Classify a picture with bslite.")
    parser.add_argument("--arch", default="squeezenet1_1", help="a named architecture (squeezenet1_1)")
    parser.add_argument("--weights", type=Path, help="its state_dict (ARCH.safetensors)")
    parser.add_argument("--picture", type=Path, default=SAMPLE, help="a picture (one that bslite brings)")
    options = parser.parse_args(arguments)

    weights = options.weights or Path(f"{options.arch}.safetensors")
    if not weights.exists():
        save_file(random_state_dict(options.arch, seed=0), weights)
        print(f"wrote {weights} with random weights: the classes will mean nothing")
    spec = bslite.from_state_dict(options.arch, weights)
    image = load_image(options.picture, (224, 224))  # cropped and normalised as ImageNet's
    found = top_classes(bslite.run(spec, image)[0])
    print(f"{options.picture.name} by {spec.name}:")
    for number, share in found:
        print(f"  class {number:4}  {100 * share:6.2f} %")
    return found


if __name__ == "__main__":
    main()
