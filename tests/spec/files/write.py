"""Writes the file of a new format, once: ``python tests/spec/files/write.py``, before the format is released.

Files that are there are never made anew; later versions of bslite must read them as they are.
"""

from pathlib import Path

import numpy as np

from bslite import run, save
from bslite.spec import GraphBuilder, ModelSpec
from bslite.spec.file import VERSION

HERE = Path(__file__).parent


def model(labels: tuple[str, ...]) -> ModelSpec:
    """A small network: free sizes, a parameter that two layers share, an infinite attribute, two outputs."""
    rng = np.random.default_rng(0)
    graph = GraphBuilder("kept")
    x = graph.input("x", ("N", 3, "H", "W"), (1, 3, 6, 6))
    ids = graph.input("ids", ("N", 2), dtype="int64")
    graph.params = {
        "conv.weight": rng.standard_normal((4, 3, 3, 3), np.float32),
        "conv.bias": rng.standard_normal(4, np.float32),
        "mean": rng.standard_normal(4, np.float32),
        "var": rng.random(4, np.float32) + np.float32(0.5),
        "fc.weight": rng.standard_normal((4, 4), np.float32),
        "table": rng.standard_normal((5, 4), np.float32),
    }
    y = graph.add("conv2d", "conv", x, params={"weight": "conv.weight", "bias": "conv.bias"}, padding=(1, 1))
    y = graph.add("batch_norm", "bn", y, params={"running_mean": "mean", "running_var": "var"}, eps=1e-3)
    y = graph.add("relu", "act", y)
    y = graph.add("pad", "pad", y, pads=(0, 0, 1, 1, 0, 0, 0, 0), value=-np.inf)
    y = graph.add("max_pool2d", "pool", y, kernel=2)
    y = graph.add("adaptive_avg_pool2d", "mean_pool", y, output_size=(1, 1))
    y = graph.add("flatten", "flat", y)
    y = graph.add("linear", "fc", y, params={"weight": "fc.weight"})
    y = graph.add("linear", "again", y, params={"weight": "fc.weight"})
    table = graph.add("constant", "table", params={"value": "table"})
    z = graph.add("gather", "rows", table, ids, axis=0)
    return graph.build(y, z, labels=labels)


def main() -> None:
    """The model without and with names of outputs: formats 1 and 2 at the time of writing."""
    rng = np.random.default_rng(1)
    x, ids = rng.standard_normal((2, 3, 7, 6), np.float32), np.array([[0, 4], [2, 2]], np.int64)
    for version, labels in ((1, ()), (2, ("scores", "rows of the table"))):
        assert version <= VERSION
        spec, path = model(labels), HERE / f"format-{version}.safetensors"
        assert not path.exists(), f"{path} is kept as it is"
        save(spec, path)
        outputs = run(spec, [x, ids], backend="reference64")
        np.savez(path.with_suffix(".npz"), x=x, ids=ids, scores=outputs[0], rows=outputs[1])


if __name__ == "__main__":
    main()
