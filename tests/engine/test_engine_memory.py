"""What would not fit the machine, or a record of the program, is an error before anything is allocated."""

import numpy as np
import pytest

from bslite import EngineError, GraphBuilder, run


def test_more_memory_than_the_machine_has() -> None:
    graph = GraphBuilder("huge")
    wide = graph.add("tile", "wide", graph.input("x", (1, 1)), repeats=(2**20, 2**24))
    spec = graph.build(graph.add("sum", "total", graph.add("exp", "e", wide)))
    with pytest.raises(EngineError, match=r"takes .* GB for values between layers; the machine has"):
        run(spec, np.ones((1, 1), np.float32))


def test_a_stride_beyond_64_bits() -> None:
    graph = GraphBuilder("far")
    graph.params["w"] = np.ones((1, 1, 1, 1), np.float32)
    x = graph.input("x", (1, 1, 4, 4))
    spec = graph.build(graph.add("conv2d", "c", x, params={"weight": "w"}, stride=2**62))
    with pytest.raises(EngineError, match="beyond 64 bits"):
        run(spec, np.ones((1, 1, 4, 4), np.float32))
