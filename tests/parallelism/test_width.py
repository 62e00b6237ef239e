"""The average width of graphs: the figures of arXiv 1908.04705, and graphs whose width is plain."""

import numpy as np
import pytest
from support.graphs import Graph

from bslite.cli.warmup import hollow
from bslite.parallelism.width import width_of

#: Heavy operators, those of the longest chain, and the average width that the paper has.
PAPER = {
    "googlenet": (58, 22, 2.64),
    "inception_v3": (95, 48, 1.98),
    "squeezenet1_1": (26, 18, 1.44),
    "resnet18": (21, 18, 1.17),
    "resnet50": (54, 50, 1.08),
    "vgg16": (16, 16, 1.0),
    "alexnet": (8, 8, 1.0),
}


@pytest.mark.parametrize("name", PAPER)
def test_widths_are_those_of_the_paper(name: str) -> None:
    width = width_of(hollow(name))
    heavy, chain, average = PAPER[name]
    assert (width.heavy, width.chain) == (heavy, chain)
    assert round(width.average, 2) == average


def test_light_operators_count_for_nothing() -> None:
    g = Graph()
    x = g.input("x", ("N", 4))
    w = np.ones((4, 4), np.float32)
    a = g("linear", "a", g("relu", "before", x), weight=w)
    b = g("linear", "b", x, weight=w)
    width = width_of(g.build(g("relu", "after", g("add", "both", g("tanh", "t", a), b))))
    assert (width.heavy, width.chain, width.average, width.pools) == (2, 1, 2.0, 2)


def test_without_a_heavy_operator_the_width_is_one() -> None:
    g = Graph()
    width = width_of(g.build(g("relu", "r", g.input("x", ("N", 4)))))
    assert (width.heavy, width.chain, width.average, width.pools) == (0, 0, 1.0, 1)


def test_a_value_that_two_read_is_counted_once() -> None:
    """The longest chain goes through the shared layer once for each way, the sum over it once in all."""
    g = Graph()
    w = np.ones((4, 4), np.float32)
    shared = g("linear", "shared", g.input("x", ("N", 4)), weight=w)
    long = g("linear", "second", g("linear", "first", shared, weight=w), weight=w)
    width = width_of(g.build(g("add", "sum", g("linear", "short", shared, weight=w), long)))
    assert (width.heavy, width.chain) == (4, 3)
    assert width.pools == 1
