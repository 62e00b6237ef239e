"""Capturing work on a GPU into graphs, by the driver or by torch."""

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bslite.engines.cuda.driver import Graph
from bslite.engines.cuda.gpu.context import NON_BLOCKING, GpuContext
from bslite.errors import EngineError

_torch_captures = threading.Lock()  # torch allows one capture at a time


class GpuGraph:
    """An instantiated graph."""

    def __init__(self, gpu: GpuContext, handle: Any) -> None:
        self._gpu, self._handle = gpu, handle
        gpu.destroy_with(self, "cuGraphExecDestroy", handle)

    def start(self, stream: int) -> None:
        self._gpu.do("cuGraphLaunch", self._handle, stream)


class TorchGraph:
    """A graph that torch captured; torch's object keeps the memory that was used in it.

    It is launched as any other graph: torch's own way needs its current stream changed, which takes longer
    than a small layer. Older versions of torch do not give the graph's handle; there torch launches it.
    """

    def __init__(self, gpu: GpuContext, graph: Any) -> None:
        self._gpu, self._graph = gpu, graph
        self._handle = 0
        with suppress(AttributeError, RuntimeError):
            self._handle = int(graph.raw_cuda_graph_exec())

    def start(self, stream: int) -> None:
        if self._handle:
            self._gpu.do("cuGraphLaunch", self._handle, stream)
            return
        with self._gpu.torch.cuda.stream(self._gpu.as_torchs(stream)):
            self._graph.replay()


def captured(gpu: GpuContext, work: Callable[[int], None], mode: Any) -> Graph:
    """A graph of what ``work`` starts on the stream it is given, on which nothing else runs.

    ``mode``: of capture, as the bindings want it. If the capture fails, it is ended and the stream given up.
    """
    stream = gpu.side("capture")
    with gpu.here():
        gpu.do("cuStreamBeginCapture", stream, mode)
        try:
            work(stream)
        except BaseException:
            del gpu.mine()["capture"]
            with suppress(EngineError):  # it says again what went wrong
                graph = gpu.do("cuStreamEndCapture", stream)
                if int(graph):
                    gpu.do("cuGraphDestroy", graph)
            raise
        try:
            graph = gpu.do("cuStreamEndCapture", stream)
        except EngineError:
            del gpu.mine()["capture"]
            raise
        try:
            return GpuGraph(gpu, gpu.do("cuGraphInstantiate", graph, 0))
        finally:
            gpu.do("cuGraphDestroy", graph)


def captured_by_torch(gpu: GpuContext, work: Callable[[int], None], spare: list[int]) -> Graph:
    """As `captured`, for work that calls torch, whose allocator must know of the capture.

    ``torch.cuda.graph`` would wait for the device and empty torch's cache before each capture; this does not.
    Nothing is forbidden meanwhile: a thread's first call of a library allocates, and garbage may be
    collected. A graph has its capturing stream for as long as it lives, one from ``spare`` if there is one:
    torch keeps a workspace of cuBLAS's for every stream, and two graphs that may run at the same time must
    not share one.
    """
    torch = gpu.torch
    graph = torch.cuda.CUDAGraph()
    with _torch_captures, gpu.here():
        torch.cuda.current_blas_handle()  # this thread's, made now if there is none
        stream = spare.pop() if spare else int(gpu.do("cuStreamCreate", NON_BLOCKING))
        with torch.cuda.stream(gpu.as_torchs(stream)):
            try:
                graph.capture_begin(capture_error_mode="relaxed")
                work(stream)
            except BaseException:
                with suppress(Exception):  # it says again what went wrong
                    graph.capture_end()
                raise  # the stream is given up
            graph.capture_end()
    made = TorchGraph(gpu, graph)
    weakref.finalize(made, spare.append, stream).atexit = False
    return made
