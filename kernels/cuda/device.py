"""The one place that imports numba.cuda, and what of it differs between a GPU and the simulator.

numba-cuda goes by two names (a GPU's compiler and driver; a simulator in plain Python, for
``NUMBA_ENABLE_CUDASIM=1``), and may come to go by another one day. Nothing else in bslite imports it.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
from numba import config, cuda

#: Whether kernels run in the simulator: one Python thread per GPU thread, so only ever on tiny shapes.
SIMULATED = bool(config.ENABLE_CUDASIM)

if SIMULATED:
    import ctypes

    from numba.cuda.simulator import kernelapi
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    from bslite.kernels.cuda import simulation

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

    def array_at(address, dtype, count):
        """Memory from ``address`` on as a kernel takes it: ``count`` cells. Who calls keeps it alive."""
        size = count * np.dtype(dtype).itemsize
        memory = (ctypes.c_char * size).from_address(address)
        return FakeCUDAArray(np.frombuffer(memory, dtype))

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

else:
    from numba.cuda import dispatcher, libdevice
    from numba.cuda.extending import register_jitable

    def array_at(address, dtype, count):
        """Memory from ``address`` on as a kernel takes it: ``count`` cells. Who calls keeps it alive.

        Nothing is synchronised: there is no stream in the description.
        """
        cells = {"shape": (count,), "strides": None, "typestr": np.dtype(dtype).str}
        return cuda.from_cuda_array_interface(
            {**cells, "data": (address, False), "version": 3, "stream": None}, sync=False
        )

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


__all__ = ["SIMULATED", "array_at", "compile_ptx", "cuda", "device_function", "pair", "put_pair"]
