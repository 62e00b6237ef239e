"""Exchange between threads and blocks, and functions that give NaN or infinity where Python's raise."""

import math
import threading

import numpy as np

from bslite.kernels.cuda.runtime.device import SIMULATED, cuda, device_function

#: The threads of a warp; the float64 cells of shared memory for `exchange`, in the simulator only.
WARP = 32
ROOM = 1024 if SIMULATED else 1

if SIMULATED:

    def exchange(value, mask, room):
        """Return the ``value`` of the thread whose number differs by ``mask``, a power of two below WARP.

        All threads of the block must take part. A GPU shuffles; the simulator, which has no shuffle, goes
        through ``room``, shared memory of ROOM float64 cells. The same values meet in the same order.
        """
        thread = threading.current_thread()
        room[thread.thread_id] = value
        thread.syncthreads()
        other = room[thread.thread_id ^ mask]
        thread.syncthreads()
        return other

    def synchronise():
        """Wait for the block's threads (the simulator's `cuda.syncthreads` knows the kernel's file only)."""
        threading.current_thread().syncthreads()

    def publish(memory, index, value, tag):
        """Store a float32 and an int32 as one float64 cell, for other blocks to `look` at."""
        low = np.array([value], np.float32).view(np.int32)[0]
        memory[index] = np.array([low, tag], np.int32).view(np.float64)[0]

    def look(memory, index, turn):
        """Return a float32 and an int32 that `publish` stored in L2: both new, or both from before."""
        cell = np.array([memory[index]])
        return cell.view(np.float32)[0], cell.view(np.int32)[1]

    def exp(x):
        """Return e to the x, float32."""
        with np.errstate(all="ignore"):
            return np.exp(np.float32(x))

    def root(x):
        """Return the square root of a float64; NaN below zero."""
        with np.errstate(all="ignore"):
            return np.sqrt(np.float64(x))

    def log(x):
        """Return the natural logarithm of a float64; minus infinity for zero, NaN below."""
        with np.errstate(all="ignore"):
            return np.log(np.float64(x))

else:
    from bslite.kernels.cuda.runtime.device import libdevice

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
        # LLVM does not know what this load depends on and might move it out of a loop. ``turn``, which is
        # zero but unknown to LLVM, keeps it in.
        both = cuda.ldcg(memory, index + np.uint64(turn))
        return libdevice.int_as_float(libdevice.double2loint(both)), libdevice.double2hiint(both)

    @device_function
    def exp(x):
        return np.float32(math.exp(x))

    @device_function
    def root(x):
        return math.sqrt(x)

    @device_function
    def log(x):
        return math.log(x)
