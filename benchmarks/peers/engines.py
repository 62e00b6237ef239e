"""The rivals, one small class each: made ready for one network, then called once per inference.

``__call__`` returns the engine's own kind of result; ``answer`` turns it into an array, outside the timing.
Each gets its input in the form it likes best, made beforehand.
"""

import shutil
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from benchmarks import rivals
from benchmarks.peers.nets import Net
from benchmarks.rivals import Unavailable
from bslite.spec import Array


class Engine(ABC):
    """Base of the rivals, made from a network and what it runs on: threads, or a device.

    Making one may take long (it compiles); calling it is what is timed. ``precision``: of its products, a
    word of `bslite.arithmetic.Precision`.
    """

    name: ClassVar[str]
    precision: ClassVar[str] = "float32"
    ours: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, net: Any, on: Any) -> None:
        """Make it ready."""

    @abstractmethod
    def __call__(self) -> Any:
        """One inference."""

    def answer(self, result: Any) -> Array:
        """The result as an array: the outputs alone, of what gives a state besides."""
        found = result[0] if isinstance(result, (tuple, list)) else result
        return np.asarray(found.detach().cpu() if hasattr(found, "detach") else found)


class Bslite(Engine):
    """bslite's engine; of what runs in float32 the user says nothing."""

    name = "bslite"
    ours = True
    layerwise = False

    def __init__(self, net: Net, threads: int) -> None:
        from bslite.api import run

        self.run, self.spec, self.x, self.threads = run, net.spec, net.x, threads
        self.told = None if self.precision == Engine.precision else self.precision

    def __call__(self) -> Any:
        return self.run(
            self.spec, self.x, layerwise=self.layerwise, threads=self.threads, precision=self.told
        )


class BsliteLayerwise(Bslite):
    """The same kernels, one layer at a time."""

    name = "bslite-layerwise"
    layerwise = True


class TorchEager(Engine):
    """torch as it comes, images ``[N, C, H, W]``."""

    name = "torch"

    def __init__(self, net: Net, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch, self.module, self.x = torch, net.module, torch.from_numpy(net.x)

    def __call__(self) -> Any:
        with self.torch.inference_mode():
            return self.module(self.x)


class TorchChannelsLast(TorchEager):
    """torch with weights and images in the layout that is faster on CPUs."""

    name = "torch-nhwc"

    def __init__(self, net: Net, threads: int) -> None:
        import copy

        super().__init__(net, threads)
        if self.x.ndim != 4:
            raise Unavailable("its layout is of images, which this network does not take")
        layout = self.torch.channels_last
        self.module = copy.deepcopy(net.module).to(memory_format=layout)
        self.x = self.x.to(memory_format=layout)


class TorchCompile(TorchEager):
    """``torch.compile``: inductor with freezing, which lets it fold and lay out weights anew."""

    name = "inductor"

    def __init__(self, net: Net, threads: int) -> None:
        super().__init__(net, threads)
        if not any(map(shutil.which, ("g++", "clang++", "c++"))):
            raise Unavailable("no C++ compiler, which inductor needs")
        import torch._dynamo
        import torch._inductor.config as config

        torch._dynamo.reset()
        config.freezing = True
        self.module = self.torch.compile(net.module)
        self()  # compiles

    def __call__(self) -> Any:
        with self.torch.no_grad():  # freezing does nothing under inference_mode
            return self.module(self.x)


class OnnxRuntime(Engine):
    """onnxruntime, every graph optimisation on."""

    name = "onnxruntime"

    def __init__(self, net: Net, threads: int) -> None:
        self.session = rivals.onnxruntime_session(str(net.onnx), threads)
        self.feed = {self.session.get_inputs()[0].name: net.x}

    def __call__(self) -> Any:
        return self.session.run(None, self.feed)[0]


class OpenVino(Engine):
    """openvino, told which precision to take: left to itself it takes bfloat16 where there is AMX."""

    name = "openvino"
    hint = "f32"

    def __init__(self, net: Net, threads: int) -> None:
        import openvino as ov

        settings = {
            "INFERENCE_PRECISION_HINT": self.hint,
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        self.request = ov.Core().compile_model(str(net.onnx), "CPU", settings).create_infer_request()
        self.x = net.x

    def __call__(self) -> Any:
        return self.request.infer([self.x], share_inputs=True, share_outputs=True)[0]


ENGINES: dict[str, type[Engine]] = {
    e.name: e
    for e in (Bslite, BsliteLayerwise, TorchEager, TorchChannelsLast, TorchCompile, OnnxRuntime, OpenVino)
}
