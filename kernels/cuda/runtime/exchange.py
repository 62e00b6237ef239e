"""What threads and blocks pass to each other, and functions of numbers at whose edge cases Python's raise."""

from __future__ import annotations

import math
import threading

import numpy as np

from bslite.kernels.cuda.runtime.device import SIMULATED, cuda, device_function

#: Threads of a warp, and the float64 cells of shared memory that `exchange` takes: in the simulator alone.
WARP = 32
ROOM = 1024 if SIMULATED else 1

if SIMULATED:

    def exchange(value, mask, room):
        """The ``value`` of the thread whose number differs by ``mask``, a power of two below WARP.

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
        """All threads of the block meet (`cuda.syncthreads` knows only the kernel's own file there)."""
        threading.current_thread().syncthreads()

    def publish(memory, index, value, tag):
        """Store a float32 and an int32 as one float64 cell, for other blocks to `look` at."""
        low = np.array([value], np.float32).view(np.int32)[0]
        memory[index] = np.array([low, tag], np.int32).view(np.float64)[0]

    def look(memory, index, turn):
        """A float32 and an int32 that `publish` stored in L2: both new, or both still those from before."""
        cell = np.array([memory[index]])
        return cell.view(np.float32)[0], cell.view(np.int32)[1]

    def exp(x):
        """e to the x, float32."""
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
        # LLVM does not know what this load depends on and might move it out of a loop. ``turn`` keeps it in:
        # it is zero, which LLVM does not know.
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
