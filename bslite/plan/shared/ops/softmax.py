"""Lowerings of softmax, its logarithm, and running totals, along any axis."""

from bslite.kernels.contracts.rows import Running, RunningWork, SoftmaxWork
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.shared.rows import axis_of, row_layer


@lowers("softmax", "log_softmax")
def lower_softmax(b: AnyBuilder, layer: Layer) -> None:
    """Lower softmax or its logarithm over each row."""
    row_layer(b, layer, SoftmaxWork(layer.node.op == "log_softmax"), axis_of(b, layer))


@lowers("cumsum", "cumprod")
def lower_cumulative(b: AnyBuilder, layer: Layer) -> None:
    """Lower running sums and products, computed in float64 or in 64-bit integers."""
    attrs, sums = layer.node.attrs, layer.node.op == "cumsum"
    flag = None
    if b.dtypes[layer.name] != "float32":
        what = "sum" if sums else "product"
        flag = b.flag(layer.name, f"a {what}, {{value}}, does not fit 32 bits", beyond=True)
    running = Running.SUM if sums else Running.PRODUCT
    row_layer(b, layer, RunningWork(running, attrs["exclusive"], attrs["reverse"], flag), axis_of(b, layer))


@lowers("logcumsumexp")
def lower_logcumsumexp(b: AnyBuilder, layer: Layer) -> None:
    """Lower logarithms of running sums of exponentials."""
    row_layer(b, layer, RunningWork(Running.LOGSUMEXP), axis_of(b, layer))
