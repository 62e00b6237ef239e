"""Settings that others recommend: each a number of runs at once and of threads for each, none a batch size.

The words of TensorFlow are "inter-op" for what runs at once and "intra-op" for the threads of each.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bslite.machine import Machine
from bslite.ops import Shape
from bslite.parallelism.width import Width
from bslite.spec import ModelSpec
from bslite.spec.graph import Node

LIMITED = 0.5  # OpenVINO: half of L2 may be taken
#: OpenVINO's multiple of it by the vectors of a processor: these have dot products of bytes.
WITH_DOTS, WITHOUT = 2.0, 1.0


@dataclass(frozen=True)
class Rule:
    """``streams`` runs at once with ``threads`` each, because of ``why``."""

    name: str
    streams: int
    threads: int
    why: str


def rules(
    spec: ModelSpec, shapes: Mapping[str, Shape], width: Width, cores: int, machine: Machine, dots: bool
) -> list[Rule]:
    """What each rule says of a model whose values have these ``shapes``, on so many physical cores."""
    pools = min(width.pools, cores)
    return [
        Rule("width", pools, cores // pools, f"average width {width.average:.2f}"),
        Rule("intel", 2, cores, "intra-op = cores, inter-op = 2"),
        Rule("tensorflow", cores, cores, "intra-op = inter-op = cores"),
        openvino(spec, shapes, cores, machine, dots),
    ]


def openvino(spec: ModelSpec, shapes: Mapping[str, Shape], cores: int, machine: Machine, dots: bool) -> Rule:
    """OpenVINO's hint THROUGHPUT (its CPU plugin's `cpu_streams_calculation`, release of 2025): threads of a
    stream by how much of the L2 the data of the largest product or 1x1 convolution takes.
    """
    threshold = LIMITED / (WITH_DOTS if dots else WITHOUT)
    tolerance = _tolerance(spec, shapes, machine.l2)
    if tolerance is None:
        large = [n for n in spec.nodes if n.op == "conv2d"]
        threads, why = (1, "all convolutions are limited by arithmetic") if large else (0, "no known layers")
    elif tolerance > threshold:
        threads, why = 1, f"L2 holds {tolerance:.2f} of the largest layer's data, above {threshold:.2f}"
    elif tolerance > LIMITED:
        threads, why = 2, f"L2 holds {tolerance:.2f} of the largest layer's data, above {LIMITED:.2f}"
    else:
        threads, why = 0, f"L2 holds {tolerance:.2f} of the largest layer's data, at most {threshold:.2f}"
    if threads:
        threads = min(threads, cores)
        return Rule("openvino", -(-cores // threads), threads, why)
    threads = next((n for n in (4, 5, 3) if cores % n == 0), cores)
    while cores // threads * 2 <= threads and threads > 1:
        threads //= 2
    return Rule("openvino", cores // threads, threads, why)


def _tolerance(spec: ModelSpec, shapes: Mapping[str, Shape], l2: int) -> float | None:
    """Bytes of L2 over those that the largest layer reads and writes, its weights left out; None if every
    layer is a convolution of 3x3 or more, which arithmetic limits.
    """
    most = max((_moved(node, spec, shapes) for node in spec.nodes), default=0)
    return l2 / (4 * most) if most else None


def _moved(node: Node, spec: ModelSpec, shapes: Mapping[str, Shape]) -> int:
    """Elements that count: inputs and output of a product or of a convolution that is less than 3x3."""
    if node.op == "conv2d":
        kernel = spec.params[node.params["weight"]].shape[2:]
        if min(kernel) >= 3:
            return 0
    elif node.op not in ("linear", "block_linear", "matmul", "conv1d"):
        return 0
    return sum(math.prod(shapes[name]) for name in (*node.inputs, node.name))
