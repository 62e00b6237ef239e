"""Graphs for the tests of rewrites, and the check that a rewrite keeps the function."""

import numpy as np

import bslite
from bslite import reference
from bslite.passes import simplify
from bslite.spec import ModelSpec
from support.check import assert_three_way
from support.graphs import Graph

RNG = np.random.default_rng(0)
START = RNG.bit_generator.state


class Net(Graph):
    """A graph whose layers are named after their op and place; numbers and arrays are constants, the same
    whichever tests ran before.
    """

    def __init__(self) -> None:
        super().__init__()
        RNG.bit_generator.state = START

    def __call__(self, op: str, *inputs: str | float | np.ndarray, **given: object) -> str:
        names = [
            x if isinstance(x, str) else self("constant", value=np.asarray(x, np.float32)) for x in inputs
        ]
        return super().__call__(op, f"{op}{len(self.nodes)}", *names, **given)


def image() -> tuple[Net, str]:
    net = Net()
    return net, net.input("x", ("N", 6, "H", 4), (2, 6, 5, 4))


def fixed_image() -> tuple[Net, str]:
    """Images of a size that is not free."""
    net = Net()
    return net, net.input("x", ("N", 6, 5, 4), (2, 6, 5, 4))


def array(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def check(spec: ModelSpec, *ops: str, inputs: list[np.ndarray] | None = None) -> ModelSpec:
    """``spec`` is simplified to nodes with these ops, apart from constants, and stays the same function."""
    if inputs is None:
        inputs = [RNG.standard_normal(i.example).astype(np.float32) for i in spec.inputs]
    simple = simplify(spec)
    left = [n.op for n in simple.nodes if n.op != "constant"]
    assert left == list(ops), f"simplified to {left}"
    assert simple.outputs == spec.outputs
    exact = reference.run(spec, inputs, np.float64)[0]
    peer = reference.run(spec, inputs, np.float32)[0]
    assert_three_way(reference.run(simple, inputs, np.float32)[0], peer, exact)
    assert_three_way(bslite.run(spec, inputs), peer, exact)
    return simple


def features_of(net: Net, x: str) -> str:
    """The mean of each of the six channels."""
    return net("reshape", net("adaptive_avg_pool2d", x, output_size=(1, 1)), shape=(0, 6))


def repeated(net: Net, value: np.ndarray, x: str) -> str:
    """A constant, once for each image of x."""
    return net("repeat_batch", value, x)
