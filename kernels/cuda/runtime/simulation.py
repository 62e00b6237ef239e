"""Another scheduler for numba.cuda's simulator: a block's threads run in turns, from barrier to barrier.

The simulator's own scheduler starts a Python thread for every GPU thread of every block, lets all of them run
at once, and asks each in a loop whether it waits at a barrier; most of the time goes into passing the
interpreter around. Here exactly one thread runs at a time and hands over when it meets a barrier or ends, in
the order of their numbers: 10 times faster, and the same every time. Python threads are kept, and one that
has ended serves the next GPU thread.

A missing barrier may show in one order of threads and not in another: `in_order` runs them in any order.
Results must be the same, bit by bit.
"""

import sys
import threading
from _thread import allocate_lock
from contextlib import contextmanager

import numpy as np
from numba.cuda.simulator import kernel, kernelapi


class _Aborted(Exception):
    """The exception in threads that wait at a barrier when another thread has failed."""


class _Worker(kernel.BlockThread):
    """A Python thread that runs one GPU thread after another."""

    def __init__(self, home):
        threading.Thread.__init__(self, daemon=True)
        self._home = home  # released when this thread stops: at a barrier, or at the end
        self._go = allocate_lock()
        self._go.acquire()
        self.start()

    def become(self, manager, block, thread, work):
        """Run the GPU thread ``thread`` of ``block``, whose body is ``work()``, from the next `resume` on."""
        x, y, z = thread
        self.blockIdx, self.threadIdx = kernel.Dim3(*block), kernel.Dim3(*thread)
        dims = manager._block_dim
        self.thread_id = x + dims[0] * (y + dims[1] * z)
        self._manager, self._work, self.exception = manager, work, None
        self.waiting, self.abort = False, False

    def resume(self):
        """Run up to the next barrier or the end."""
        self.waiting = False
        self._go.release()
        self._home.acquire()

    def run(self):
        with np.errstate(all="ignore"):  # as on GPUs, infinities and NaN give no warning
            while True:
                self._go.acquire()
                try:
                    self._work()
                except _Aborted:
                    pass
                except BaseException as error:
                    self.exception = error
                self._work = None
                self._home.release()

    def syncthreads(self):
        """Wait at a barrier; kernels call it as `cuda.syncthreads()`."""
        self.waiting = True
        self._home.release()
        self._go.acquire()
        if self.abort:
            raise _Aborted


_mine = threading.local()  # free workers, the lock they hand over by, and the order in which they run


@contextmanager
def in_order(order):
    """Set the order of simulated GPU threads between barriers to ``order(threads)``, a reordered list of them
    by number, for this Python thread while the context is open.
    """
    _mine.order = order
    try:
        yield
    finally:
        del _mine.order


def _run(self, grid_point, *args):
    """Run one block, in place of `BlockManager.run`."""
    if not hasattr(_mine, "free"):
        _mine.free, _mine.home = [], allocate_lock()
        _mine.home.acquire()
    block = (*grid_point, *(0,) * (3 - len(grid_point)))

    def work():
        self._f(*args)

    order = getattr(_mine, "order", lambda found: found)

    def started():
        for point in order(list(np.ndindex(*self._block_dim))):
            worker = _mine.free.pop() if _mine.free else _Worker(_mine.home)
            worker.become(self, block, (*point, *(0,) * (3 - len(point))), work)
            yield worker

    threads, later = started(), []
    while True:
        waiting = []
        for worker in threads:
            worker.resume()
            if worker.waiting:
                waiting.append(worker)
                continue
            _mine.free.append(worker)
            if worker.exception is not None:
                _abort([*waiting, *later[later.index(worker) + 1 :]] if later else waiting)
                at = f"thread {list(worker.threadIdx)} of block {list(worker.blockIdx)}"
                raise type(worker.exception)(f"{at}: {worker.exception}") from worker.exception
        if not waiting:
            return
        threads = later = order(sorted(waiting, key=lambda worker: worker.thread_id))


def _abort(workers):
    """End the threads that wait at a barrier."""
    for worker in workers:
        worker.abort = True
        worker.resume()
        _mine.free.append(worker)


def _shared_array(self, shape, dtype, alignment=None):
    """Return shared memory as `numba.cuda.simulator.kernelapi` does, which refuses an alignment: one array
    for each line of source that declares one.
    """
    frame = sys._getframe(1)
    place = frame.f_code.co_filename, frame.f_lineno
    if place not in self._allocations:
        self._allocations[place] = np.empty(shape, dtype)
    return self._allocations[place]


def install():
    """Make the simulator run blocks by this scheduler and accept aligned shared memory."""
    kernel.BlockManager.run = _run
    kernelapi.FakeCUDAShared.array = _shared_array
