"""The one module that imports numba.cuda, and the differences between a GPU and the simulator.

numba-cuda is either a GPU's compiler and driver or, with ``NUMBA_ENABLE_CUDASIM=1``, a simulator in plain
Python; it may get another name one day. Only this module and `simulation`, which changes the simulator,
import it.
"""

import warnings
from types import SimpleNamespace

import numpy as np
from numba import config, cuda

#: Whether kernels run in the simulator: one Python thread per GPU thread, so only ever on tiny shapes.
SIMULATED = bool(config.ENABLE_CUDASIM)

if SIMULATED:
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    from bslite.kernels.cuda.runtime import simulation

    simulation.install()

    #: The simulator has no driver functions, bindings, intrinsics or libdevice.
    api = binding = intrinsic = libdevice = None

    def simulated_array(array):
        """Return a NumPy array as a simulated kernel takes it, in place, without a copy."""
        return FakeCUDAArray(array)

    def device_function(body):
        """Return a function that kernels call: in the simulator the function itself."""
        return body

    def simulated(body):
        """Return the kernel, to be called as on a GPU: overflow and NaN give no warning."""
        return _Quiet(cuda.jit(body))

    class _Quiet:
        def __init__(self, jitted):
            self._jitted = jitted

        def __getitem__(self, configuration):
            launched = self._jitted[configuration]

            def launch(*given):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # threads do not inherit np.errstate
                    launched(*given)

            return launch

    def compile_ptx(body, signature, capability, bounds):
        """The simulator has no compiler."""
        raise RuntimeError("numba.cuda's simulator does not compile; unset NUMBA_ENABLE_CUDASIM")

    def pair(memory, index):
        """Return elements ``2*index`` and ``2*index + 1`` of the float32 values in ``memory``, float64 cells:
        one load of 8 bytes.
        """
        low, high = np.asarray(memory[index]).reshape(1).view(np.float32)
        return low, high

    def put_pair(memory, index, low, high):
        """Store ``low, high`` as elements ``2*index, 2*index + 1``: one store of 8 bytes."""
        memory[index] = np.array([low, high], np.float32).view(np.float64)[0]

else:
    from numba.cuda import dispatcher, libdevice
    from numba.cuda.cudadrv.driver import binding
    from numba.cuda.cudadrv.driver import driver as api
    from numba.cuda.extending import intrinsic, register_jitable

    def device_function(body):
        """Return a function that kernels call, always inlined into them."""
        return register_jitable(forceinline=True)(body)

    def compile_ptx(body, signature, capability, bounds):
        """Return a kernel's PTX for GPUs of ``capability``; no GPU is needed. ``bounds``: the most threads of
        a block, and how many such blocks must fit on an SM.

        numba-cuda compiles the functions that a kernel calls for the current device, so a stand-in device of
        ``capability`` takes its place. numba-cuda keeps these functions: a process should ask for one only.
        """
        asked = dispatcher.get_current_device
        dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
        try:
            text, _ = cuda.compile_ptx(body, signature, cc=capability, launch_bounds=bounds)
        finally:
            dispatcher.get_current_device = asked
        return text

    def simulated(body):
        """The compiler comes without a simulator."""
        raise RuntimeError("numba.cuda's simulator runs only with NUMBA_ENABLE_CUDASIM=1")

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


__all__ = [
    "SIMULATED",
    "api",
    "binding",
    "compile_ptx",
    "cuda",
    "device_function",
    "intrinsic",
    "libdevice",
    "pair",
    "put_pair",
    "simulated",
]
