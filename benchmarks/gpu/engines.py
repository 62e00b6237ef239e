"""The rivals on the GPU, a small class each; inputs and weights lie there before anything is timed."""

import copy
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.case import Case
from benchmarks.gpu.device import Host
from benchmarks.peers.engines import Engine
from benchmarks.rivals import Unavailable

WARM = 3  # calls before a CUDA graph is captured, as torch's manual has it


class Captured:
    """The kernels of a call, captured by torch in a CUDA graph and replayed: no time on the host."""

    def __init__(self, device: Host, call: Callable[[], Any]) -> None:
        if device.kind != "cuda":
            raise Unavailable("CUDA graphs need a GPU")
        torch = device.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                call()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.made = call()

    def __call__(self) -> Any:
        self.graph.replay()
        return self.made


class Bslite(Engine):
    """bslite's engine for the device, on the tensor as it lies there."""

    name = "bslite"
    ours = True
    layerwise = False

    def __init__(self, case: Case, device: Host) -> None:
        from bslite.api import run

        self.run, self.spec, self.x = run, case.spec, device.put(case.tensor)
        self.backend = device.kind

    def __call__(self) -> Any:
        return self.run(self.spec, self.x, backend=self.backend, layerwise=self.layerwise)


class BsliteGraph(Bslite):
    """The same in a CUDA graph of the caller's."""

    name = "bslite-graph"

    def __init__(self, case: Case, device: Host) -> None:
        super().__init__(case, device)
        self.captured = Captured(device, super().__call__)

    def __call__(self) -> Any:
        return self.captured()


class BsliteLayerwise(Bslite):
    """The same kernels, one layer at a time."""

    name = "bslite-layerwise"
    layerwise = True


class Torch(Engine):
    """torch as it comes, images ``[N, C, H, W]``; cuDNN chooses its algorithms by trying them."""

    name = "torch"
    against = "bslite"  # called alike

    def __init__(self, case: Case, device: Host) -> None:
        self.torch = device.torch
        self.module = device.put(copy.deepcopy(case.module))
        self.x = device.put(case.tensor)

    def __call__(self) -> Any:
        with self.torch.inference_mode():
            return self.module(self.x)


class TorchChannelsLast(Torch):
    """torch with weights and images channels-last."""

    name = "torch-nhwc"

    def __init__(self, case: Case, device: Host) -> None:
        super().__init__(case, device)
        if self.x.ndim != 4:
            raise Unavailable("no images")
        layout = self.torch.channels_last
        self.module, self.x = self.module.to(memory_format=layout), self.x.to(memory_format=layout)


class TorchGraph(Torch):
    """torch in a CUDA graph."""

    name = "torch-graph"
    against = "bslite-graph"

    def __init__(self, case: Case, device: Host) -> None:
        super().__init__(case, device)
        self.captured = Captured(device, super().__call__)

    def __call__(self) -> Any:
        return self.captured()


class TorchAutotuned(Torch):
    """``torch.compile(mode="max-autotune")``: inductor with Triton's fastest templates and CUDA graphs."""

    name = "max-autotune"

    def __init__(self, case: Case, device: Host) -> None:
        super().__init__(case, device)
        if device.kind != "cuda":
            raise Unavailable("not rehearsed: it needs a GPU")
        self.torch.compiler.reset()
        self.module = self.torch.compile(self.module, mode="max-autotune", dynamic=False)
        for _ in range(WARM):  # compiles, then records its graphs
            self()

    def __call__(self) -> Any:
        with self.torch.no_grad():
            return self.module(self.x)


ENGINES: dict[str, type[Engine]] = {
    e.name: e
    for e in (Bslite, BsliteGraph, BsliteLayerwise, Torch, TorchChannelsLast, TorchGraph, TorchAutotuned)
}
QUICK = tuple(name for name in ENGINES if name != TorchAutotuned.name)
