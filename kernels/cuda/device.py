"""The one place that imports numba.cuda, and what of it differs between a GPU and the simulator.

numba-cuda goes by two names (a GPU's compiler and driver; a simulator in plain Python, for
``NUMBA_ENABLE_CUDASIM=1``), and may come to go by another one day. Nothing else in bslite imports it.
"""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import numpy as np
from numba import config, cuda

#: Whether kernels run in the simulator: one Python thread per GPU thread, so only ever on tiny shapes.
SIMULATED = bool(config.ENABLE_CUDASIM)
#: Threads of a warp, and the float64 cells of shared memory that `exchange` takes: in the simulator alone.
WARP = 32
ROOM = 1024 if SIMULATED else 1

if SIMULATED:
    from numba.cuda.simulator import kernelapi
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    from bslite.kernels.cuda import simulation

    #: The driver's functions, and the bindings under them: there are none.
    api = binding = None

    def _shared_array(self, shape, dtype, alignment=None):
        """As in `numba.cuda.simulator.kernelapi`, which refuses an alignment: one array for each line of
        source that asks for one.
        """
        frame = sys._getframe(1)
        place = frame.f_code.co_filename, frame.f_lineno
        if place not in self._allocations:
            self._allocations[place] = np.empty(shape, dtype)
        return self._allocations[place]

    kernelapi.FakeCUDAShared.array = _shared_array
    simulation.install()

    def simulated_array(array):
        """A NumPy array as a simulated kernel takes it: in place, nothing copied."""
        return FakeCUDAArray(array)

    def device_function(body):
        """A function that kernels call: in the simulator the function itself."""
        return body

    def compile_ptx(body, signature, capability, bounds):
        """There is no compiler in the simulator."""
        raise RuntimeError("numba.cuda's simulator does not compile; unset NUMBA_ENABLE_CUDASIM")

    def pair(memory, index):
        """Elements ``2*index`` and ``2*index + 1`` of the float32 values in ``memory``, float64 cells: one
        load of 8 bytes.
        """
        low, high = np.asarray(memory[index]).reshape(1).view(np.float32)
        return low, high

    def put_pair(memory, index, low, high):
        """Store ``low, high`` as elements ``2*index, 2*index + 1``: one store of 8 bytes."""
        memory[index] = np.array([low, high], np.float32).view(np.float64)[0]

    def exchange(value, mask, room):
        """The ``value`` of the thread whose number differs by ``mask``, a power of two below WARP.

        All threads of the block must take part. A shuffle on a GPU; the simulator, which has none, goes
        through ``room``, shared memory of ROOM float64 cells.
        """
        thread = threading.current_thread()
        room[thread.thread_id] = value
        thread.syncthreads()
        other = room[thread.thread_id ^ mask]
        thread.syncthreads()
        return other

    def synchronise():
        """All threads of the block meet (`cuda.syncthreads` knows only the kernel's own file there)."""
        threading.current_thread().syncthreads()

    def publish(memory, index, value, tag):
        """Store a float32 and an int32 as one float64 cell, for other blocks to `look` at: see there."""
        low = np.array([value], np.float32).view(np.int32)[0]
        memory[index] = np.array([low, tag], np.int32).view(np.float64)[0]

    def look(memory, index, turn):
        """A float32 and an int32 that `publish` stored, or that are still there from before."""
        cell = np.array([memory[index]])
        return cell.view(np.float32)[0], cell.view(np.int32)[1]

    def launched_together(compiled):
        """The compiled kernel, to be launched cooperatively: all blocks at once, or the driver refuses."""
        return compiled

    def exp(x):
        """e to the x, float32. (Python's raises where the result is infinite.)"""
        with np.errstate(all="ignore"):
            return np.exp(np.float32(x))

    def root(x):
        """Square root of a float64; NaN below zero."""
        with np.errstate(all="ignore"):
            return np.sqrt(np.float64(x))

    def log(x):
        """Natural logarithm of a float64; minus infinity of zero, NaN below."""
        with np.errstate(all="ignore"):
            return np.log(np.float64(x))

else:
    import math

    from numba.cuda import dispatcher, libdevice
    from numba.cuda.cudadrv.driver import binding
    from numba.cuda.cudadrv.driver import driver as api
    from numba.cuda.extending import register_jitable

    def device_function(body):
        """A function that kernels call, always inlined into them."""
        return register_jitable(forceinline=True)(body)

    def compile_ptx(body, signature, capability, bounds):
        """A kernel's PTX for GPUs of ``capability``; no GPU needed. ``bounds``: the most threads of a block, and
        how many such blocks must fit on an SM.

        numba-cuda asks the current device whom to compile the functions for that a kernel calls; so this says
        it is one of ``capability``, and a process should ask for one capability only: they are kept.
        """
        asked = dispatcher.get_current_device
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
        try:
            text, _ = cuda.compile_ptx(body, signature, cc=capability, launch_bounds=bounds)
        finally:
            dispatcher.get_current_device = asked
        return text

    @device_function
    def pair(memory, index):
        both = memory[index]
        return (
            libdevice.int_as_float(libdevice.double2loint(both)),
            libdevice.int_as_float(libdevice.double2hiint(both)),
        )

    @device_function
    def put_pair(memory, index, low, high):
        memory[index] = libdevice.hiloint2double(libdevice.float_as_int(high), libdevice.float_as_int(low))

    @device_function
    def exchange(value, mask, room):
        return cuda.shfl_xor_sync(0xFFFFFFFF, value, mask)

    @device_function
    def synchronise():
        cuda.syncthreads()

    @device_function
    def publish(memory, index, value, tag):
        cuda.stcg(memory, index, libdevice.hiloint2double(tag, libdevice.float_as_int(value)))

    @device_function
    def look(memory, index, turn):
        # The load is an instruction LLVM knows nothing of, and so might take out of a loop: ``turn``, zero
        # but not known to be, keeps it in.
        both = cuda.ldcg(memory, index + np.uint64(turn))
        return libdevice.int_as_float(libdevice.double2loint(both)), libdevice.double2hiint(both)

    def launched_together(compiled):
        # numba-cuda does so by itself for a kernel with a grid-wide barrier, which needs the runtime's device
        # library at hand; ours has none, so it is told.
        for one in compiled.overloads.values():
            one.cooperative = True
        return compiled

    @device_function
    def exp(x):
        return np.float32(math.exp(x))

    @device_function
    def root(x):
        return math.sqrt(x)

    @device_function
    def log(x):
        return math.log(x)


__all__ = [
    "ROOM",
    "SIMULATED",
    "WARP",
    "api",
    "binding",
    "compile_ptx",
    "cuda",
    "device_function",
    "exchange",
    "exp",
    "launched_together",
    "log",
    "look",
    "pair",
    "publish",
    "put_pair",
    "root",
    "synchronise",
]
