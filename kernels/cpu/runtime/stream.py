"""The machine's limits: repeated reads and copies of a working set, multiply-adds, barriers.

The kernel loads and stores whole registers explicitly, so it measures the cache level and not the compiler.
"""

import numpy as np

from bslite.kernels.contracts.cpu.measure import Mode, Stream
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.across import hsum
from bslite.kernels.cpu.vector.atomic import LINE, fetch_add, wait_until
from bslite.kernels.cpu.vector.memory import load, store, store_int, store_scalar
from bslite.kernels.cpu.vector.simd import BYTES, fma, splat

F = reader(Stream)
READ, COPY, CHAIN, FMA, TURNS, MEET = map(int, Mode)
FMAS = 12  # independent multiply-adds of one iteration: more than any core has in flight
RUN = 8 * BYTES  # bytes of one iteration of the inner loop; `bytes` is a multiple of it
PANELS = 128 * RUN  # bytes that are always read forwards, as panels of weights are
f = np.float32


@step_kernel(Stream)
def stream(step, bases, item, scratch):
    """Runs ``repeats`` passes of one mode over this item's own ``bytes``.

    READ reads them; COPY writes them to as many bytes at the target. TURNS reads, every second pass from the
    last `PANELS` bytes to the first, as recurrent layers read their weights. FMA computes twelve
    multiply-adds in registers. CHAIN computes an addition and an exclusive or that depend on each other, one
    cycle each. MEET adds one to a counter and waits until all ``a`` items have, each time on another line of
    the data, which must hold zeros; all items must run at once.
    """
    s = F(step, bases)
    size, repeats, mode = s.bytes, s.repeats, s.mode
    start = s.data + item * s.data_item
    to = s.target + item * s.data_item - start
    sink = s.sink + item * 64
    if mode in (READ, TURNS):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = splat(f(0.0))  # enough to hide the latency of the additions
        block = PANELS if mode == TURNS else size
        blocks = -(-size // block)
        for turn in range(repeats):
            for i in range(blocks):
                first = block * (blocks - 1 - i if mode == TURNS and turn & 1 else i)
                for p in range(start + first, start + min(first + block, size), RUN):
                    s0 = s0 + load(p)
                    s1 = s1 + load(p + BYTES)
                    s2 = s2 + load(p + 2 * BYTES)
                    s3 = s3 + load(p + 3 * BYTES)
                    s4 = s4 + load(p + 4 * BYTES)
                    s5 = s5 + load(p + 5 * BYTES)
                    s6 = s6 + load(p + 6 * BYTES)
                    s7 = s7 + load(p + 7 * BYTES)
        store_scalar(sink, hsum(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))))
    elif mode == COPY:
        for _ in range(repeats):
            for p in range(start, start + size, RUN):
                for v in range(8):
                    store(p + to + v * BYTES, load(p + v * BYTES))
    elif mode == FMA:
        # Different starts, else the compiler sees that all twelve are the same.
        s0, s1, s2, s3 = splat(f(item)), splat(f(item + 1)), splat(f(item + 2)), splat(f(item + 3))
        s4, s5, s6, s7 = splat(f(item + 4)), splat(f(item + 5)), splat(f(item + 6)), splat(f(item + 7))
        t0, t1, t2, t3 = splat(f(item + 8)), splat(f(item + 9)), splat(f(item + 10)), splat(f(item + 11))
        half, one = splat(f(0.5)), splat(f(1.0))
        for _ in range(repeats):
            s0 = fma(s0, half, one)
            s1 = fma(s1, half, one)
            s2 = fma(s2, half, one)
            s3 = fma(s3, half, one)
            s4 = fma(s4, half, one)
            s5 = fma(s5, half, one)
            s6 = fma(s6, half, one)
            s7 = fma(s7, half, one)
            t0 = fma(t0, half, one)
            t1 = fma(t1, half, one)
            t2 = fma(t2, half, one)
            t3 = fma(t3, half, one)
        total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((t0 + t1) + (t2 + t3))
        store_scalar(sink, hsum(total))
    elif mode == MEET:
        everyone, data = s.a, s.data
        for i in range(repeats):
            fetch_add(data + i * LINE, 1)
            wait_until(data + i * LINE, everyone)
    else:
        a, b, x = s.a, s.b, item
        for _ in range(repeats):
            x = (x + a) ^ b
        store_int(sink, x)
