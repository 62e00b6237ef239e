"""Pooling of signals ``[N, C, L]`` and volumes ``[N, C, D, H, W]``: what `pool.py` declares for images."""

from typing import Any

from bslite.ops.core import case, declare
from bslite.ops.pool import AdaptivePool, WindowPool, adaptive_attrs, avg_attrs, window_attrs

BARE: dict[str, Any] = {"kernel": 3, "stride": 2, "padding": 1, "count_include_pad": False}
#: Cases of windows along one axis.
SIGNALS = [
    case("one element", (1, 1, 1), kernel=1),
    case("2", (2, 5, 8), kernel=2),
    case("3, overlapping", (1, 17, 9), kernel=3, stride=1, padding=1),
    case("3, every other", (2, 70, 12), kernel=3, stride=2, padding=1),
    case("asymmetric padding", (1, 4, 8), kernel=3, stride=2, padding=(0, 1)),
    case("stride over the kernel", (1, 3, 11), kernel=2, stride=4),
    case("ceil", (2, 4, 8), kernel=3, stride=2, ceil_mode=True),
    case("ceil, padded", (1, 5, 6), kernel=3, stride=2, padding=1, ceil_mode=True),
    case("as long as the signal", (2, 6, 7), kernel=7),
]


declare(
    WindowPool,
    "max_pool1d",
    "Largest element of each window of a signal; see `max_pool2d`.",
    onnx="MaxPool",
    axes=1,
    attrs=window_attrs(1, "minus infinity"),
    samples=[*SIGNALS, case("dilated", (2, 3, 11), kernel=3, stride=2, dilation=2, padding=1)],
)
declare(
    WindowPool,
    "avg_pool1d",
    "Mean of each window of a signal; see `avg_pool2d`.",
    onnx="AveragePool",
    axes=1,
    attrs=avg_attrs(1),
    samples=[
        *SIGNALS,
        case("padding not counted", (2, 5, 9), **BARE),
        case("ceil, padding not counted", (1, 5, 6), **BARE, ceil_mode=True),
        case("divisor given", (1, 3, 8), kernel=2, divisor_override=3),
        case("dilated", (2, 3, 13), **BARE, dilation=3),
    ],
)
VOLUMES = [
    case("one voxel", (1, 1, 1, 1, 1), kernel=1),
    case("2x2x2", (2, 5, 4, 6, 8), kernel=2),
    case("3x3x3, overlapping", (1, 17, 4, 5, 6), kernel=3, stride=1, padding=1),
    case("3x3x3, every other", (2, 70, 5, 6, 7), kernel=3, stride=2, padding=1),
    case("within frames", (2, 20, 3, 8, 7), kernel=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
    case("across frames", (2, 7, 6, 4, 5), kernel=(2, 1, 1)),
    case("frames left out", (1, 3, 5, 4, 4), kernel=1, stride=(2, 1, 1)),
    case("asymmetric", (1, 4, 5, 7, 8), kernel=(2, 3, 3), stride=(1, 2, 3), padding=(0, 1, 1, 1, 1, 0)),
    case("ceil", (1, 4, 4, 7, 8), kernel=3, stride=2, ceil_mode=True),
    case("ceil, padded", (2, 5, 4, 6, 7), kernel=3, stride=2, padding=1, ceil_mode=True),
    case("as large as the volume", (2, 6, 3, 4, 5), kernel=(3, 4, 5)),
]


declare(
    WindowPool,
    "max_pool3d",
    "Largest element of each window of a volume; see `max_pool2d`.",
    onnx="MaxPool",
    axes=3,
    attrs=window_attrs(3, "minus infinity"),
    samples=[
        *VOLUMES,
        case("dilated", (1, 3, 6, 7, 5), kernel=(2, 3, 2), stride=1, dilation=(3, 2, 1), padding=(1, 1, 0)),
    ],
)
declare(
    WindowPool,
    "avg_pool3d",
    "Mean of each window of a volume; see `avg_pool2d`.",
    onnx="AveragePool",
    axes=3,
    attrs=avg_attrs(3),
    samples=[
        *VOLUMES,
        case("padding not counted", (2, 5, 5, 6, 9), **BARE),
        case("ceil, padding not counted", (1, 5, 4, 6, 7), **BARE, ceil_mode=True),
        case("divisor given", (1, 3, 4, 6, 5), kernel=2, divisor_override=3),
        case("dilated", (1, 3, 6, 7, 9), kernel=(2, 3, 2), stride=1, dilation=(3, 2, 4), padding=1),
        case("dilated, padding not counted", (1, 3, 6, 7, 9), **BARE, dilation=2),
        case("divisor given, within frames", (1, 3, 4, 6, 5), kernel=(1, 2, 2), divisor_override=3),
        case("divisor given, across frames", (1, 3, 4, 6, 5), kernel=(2, 1, 1), divisor_override=3),
    ],
)


class AdaptiveSignalPool(AdaptivePool):
    """Cases along one axis."""

    axes = 1
    attrs = adaptive_attrs(1)

    samples = [
        case("global", (2, 19, 7), output_size=1),
        case("global, long", (1, 20, 500), output_size=1),
        case("even division", (2, 4, 12), output_size=6),
        case("overlapping windows", (1, 5, 13), output_size=6),
        case("larger than the input", (2, 3, 3), output_size=7),
        case("size kept", (1, 3, 6), output_size=(None,)),
    ]


declare(
    AdaptiveSignalPool,
    "adaptive_avg_pool1d",
    "Mean of each window of a signal; global average pooling at ``output_size`` 1.",
    onnx="GlobalAveragePool",
)
declare(
    AdaptiveSignalPool,
    "adaptive_max_pool1d",
    "Largest element of each window of a signal; global max pooling at ``output_size`` 1.",
    onnx="GlobalMaxPool",
)


class AdaptiveVolumePool(AdaptivePool):
    """Cases along three axes."""

    axes = 3
    attrs = adaptive_attrs(3)

    samples = [
        case("global", (2, 19, 2, 7, 7), output_size=1),
        case("global, large frames", (1, 20, 3, 17, 18), output_size=1),
        case("one voxel to many", (1, 4, 1, 1, 1), output_size=3),
        case("even division", (2, 4, 4, 12, 8), output_size=(2, 6, 4)),
        case("overlapping windows", (1, 70, 5, 13, 11), output_size=(3, 6, 6)),
        case("larger than the input", (2, 3, 2, 3, 2), output_size=(3, 7, 5)),
        case("frames kept", (1, 3, 4, 6, 9), output_size=(None, 1, 2)),
        case("only frames", (1, 3, 4, 6, 9), output_size=(1, None, None)),
    ]


declare(
    AdaptiveVolumePool,
    "adaptive_avg_pool3d",
    "Mean of each window of a volume; global average pooling at ``output_size`` 1.",
    onnx="GlobalAveragePool",
)
declare(
    AdaptiveVolumePool,
    "adaptive_max_pool3d",
    "Largest element of each window of a volume; global max pooling at ``output_size`` 1.",
    onnx="GlobalMaxPool",
)
