"""The rivals whose products are of bfloat16 numbers, each only where its library can be told so."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.peers.engines import Engine, OpenVino, TorchChannelsLast, TorchEager
from benchmarks.peers.nets import Net
from benchmarks.rivals import Unavailable

PLACES = ("matmul", "conv")  # of torch.backends.mkldnn, each with a precision of its own


class TorchAutocast(TorchEager):
    """torch under autocast, images ``[N, C, H, W]``: layers that gain by it take and give bfloat16."""

    name = "torch-bfloat16"
    precision = "bfloat16"

    def __call__(self) -> Any:
        with self.torch.autocast("cpu", self.torch.bfloat16):
            return super().__call__()

    def answer(self, result: Any) -> Any:
        """As float32, because NumPy has no bfloat16."""
        return super().answer(result.float())


class TorchAutocastChannelsLast(TorchAutocast, TorchChannelsLast):
    """torch under autocast, in the layout that is faster on CPUs."""

    name = "torch-nhwc-bfloat16"


class TorchMkldnn(TorchEager):
    """torch whose oneDNN may round the factors of float32 products to bfloat16; values stay float32.

    Images and weights have the layout that is faster on CPUs.
    """

    name = "torch-mkldnn-bfloat16"
    precision = "bfloat16"

    def __init__(self, net: Net, threads: int) -> None:
        super().__init__(net, threads)
        mkldnn: Any = self.torch.backends.mkldnn
        if not all(hasattr(getattr(mkldnn, place, None), "fp32_precision") for place in PLACES):
            raise Unavailable("torch.backends.mkldnn has no precision of its own before torch 2.9")
        if self.x.ndim == 4:
            best = TorchChannelsLast(net, threads)
            self.module, self.x = best.module, best.x

    def __call__(self) -> Any:
        with ExitStack() as stack:
            for place in PLACES:
                stack.enter_context(rounding(getattr(self.torch.backends.mkldnn, place)))
            return super().__call__()


class OpenVinoBfloat16(OpenVino):
    """openvino, told to take bfloat16."""

    name = "openvino-bfloat16"
    precision = "bfloat16"
    hint = "bf16"


@contextmanager
def rounding(place: Any) -> Iterator[None]:
    """bfloat16 is the precision of one of torch's backends inside, what it was afterwards."""
    before = place.fp32_precision
    place.fp32_precision = "bf16"
    try:
        yield
    finally:
        place.fp32_precision = before


BFLOAT16: tuple[type[Engine], ...] = (
    TorchAutocast, TorchAutocastChannelsLast, TorchMkldnn, OpenVinoBfloat16,
)  # fmt: skip
