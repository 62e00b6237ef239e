"""The sums of a recurrent layer's time step: the places of a block's weights, and their products with h.

A warp has ``rows`` rows of its block's ``gates * units``; ``parts`` warps share a row, ``lanes * deep``
columns each, and a lane has ``deep`` of these, one in every ``lanes``. So a thread has ``rows * deep``
weights, the same ones in every time step. They are in three places:

* **Registers**: the first ``held`` columns. An SM has 256 KB; of a thread's 255 some 180 can be weights
  (compute capability 9.0, 8 warps of 32 lanes: 180 KB). They cost nothing but their multiply-add.
* **Shared memory**, up to 227 KB of an SM (H100, H200; 163 KB on an A100): more than the 48 KB that a kernel
  has by default, so it is *dynamic*, its size a parameter of the launch. It is read at 128 bytes a cycle; to
  read 216 KB takes 1,700 cycles, 0.95 us at 1.83 GHz.
* **L2**: the rest is read at every step, about 23 bytes per cycle and SM if all SMs read (5.5 TB/s).

h is read from shared memory, too: one float serves ``rows`` multiply-adds.

What fits an H200 (132 SMs; bytes of an SM, whole units to a block, batch 1; a table is in docs/explore.md):
LSTM 1024 128 KB and GRU 1024 120 KB, all in registers. GRU 1536 216 KB, LSTM 1536 288 KB and GRU 2048 384 KB,
in registers and shared memory. LSTM 2048 512 KB, of which 184 KB, 24 MB of all SMs, are read from L2; GRU
2560 640 KB, of which 312 KB are (38 MB); GRU 2816 790 KB, of which 550 KB are: these 65 MB are more than L2
holds, so they come from memory.

The columns beyond ``held`` come in ``rounds`` of ``near`` columns from shared memory and then ``far`` from
L2. A round requests the ``far * rows`` weights of the next, which arrive while its shared ones are multiplied
(and those of the first round while the block waits for h): two or three columns of eight rows are 16 to 24 KB
in flight on an SM; 23 bytes a cycle need 14 KB if they take 600 cycles. So the two overlap, and the longer
one counts. Columns are summed in their order, wherever they are: the bits do not depend on it.

A weight read from shared memory or L2 serves ``abreast`` sequences, each with sums of its own.

Shared memory is written and read by the same thread only, so there is no barrier. It is read 16 bytes at a
time, thread beside thread, ``[quads][threads][4]``: eight lanes are all 32 banks. A thread's quads hold its
weights in the order of columns, then rows; the last quad of a round may be padded.
"""

import functools

import numpy as np

from bslite.kernels.contracts.cuda.recurrent import QUAD, Tile
from bslite.kernels.cuda.gemm.tile import unrolled
from bslite.kernels.cuda.runtime.device import device_function
from bslite.kernels.cuda.runtime.exchange import exchange

f = np.float32


def folding(count: int, lanes: int):
    """Return ``(sums, lane, room)``, which adds ``count`` sums of each lane over a warp's lanes, in place.

    Both are powers of two. The lanes fold by halves: where lanes still share several sums, each half of them
    goes on with half of the sums, so the whole takes count - 1 + log2(lanes / count) exchanges. Afterwards
    ``sums`` begins with the totals from number ``lane * count // lanes`` on: one, or ``count // lanes``.
    """

    def level(count, mask, rest):
        half = count // 2

        @device_function
        def fold(sums, lane, room):
            if count > 1:
                for i in range(half):
                    low, high = sums[i], sums[i + half]
                    upper = lane & mask != 0
                    given = f(exchange(low if upper else high, mask, room))
                    sums[i] = (high if upper else low) + given
            else:
                sums[0] += f(exchange(sums[0], mask, room))
            rest(sums, lane, room)

        return fold

    @device_function
    def done(sums, lane, room):
        pass

    folds, mask, counts = done, 1, []
    while (1 << len(counts)) < lanes:
        counts.append(max(1, count >> len(counts)))
    for own in reversed(counts):
        folds = level(own, mask, folds)
        mask *= 2
    return folds


@device_function
def _nothing(*args):
    pass


def _each(count: int, body):
    """Return `unrolled`, which here may have a count of 0."""
    return unrolled(count, body) if count else _nothing


@functools.cache
def reading(s: Tile, count: int):
    """Return ``(c=0, weights, row_at, first, depth, to)``, which loads ``count`` columns from number
    ``first`` on of all rows of a thread, ``to [count * rows]``. ``row_at [rows]`` is where each row begins in
    ``weights``; columns from ``depth`` on are zeros.
    """
    rows, lanes = s.rows, s.lanes

    @device_function
    def column(c, weights, row_at, first, depth, to):
        k = first + c * lanes
        for i in range(rows):
            to[c * rows + i] = f(0.0)
        if k < depth:  # no branch here waits for the loads
            for i in range(rows):
                to[c * rows + i] = weights[np.uint64(row_at[i] + first) + np.uint64(c * lanes)]

    return _each(count, column)


@functools.cache
def storing(s: Tile):
    """Return ``(weights, row_at, first, depth, me, now, stored)``, which puts the thread's weights in shared
    memory; ``first`` is the thread's first column, ``now [4 * quads]`` registers.
    """
    lanes, held, near, threads = s.lanes, s.held, s.near, s.threads
    each, rounds, quads = near + s.far, s.rounds, s.quads
    read = reading(s, near)

    @device_function
    def put(q, now, stored, at):
        for e in range(QUAD):
            stored[at + np.uint32(q * QUAD * threads + e)] = now[q * QUAD + e]

    write = _each(quads, put)

    @device_function
    def store(weights, row_at, first, depth, me, now, stored):
        for turn in range(rounds):
            read(0, weights, row_at, first + (held + turn * each) * lanes, depth, now)
            write(0, now, stored, np.uint32(QUAD * (me + turn * (quads * threads))))

    return store if near and rounds else _nothing


@functools.cache
def multiplying(s: Tile):
    """Return ``(weights, row_at, first, depth, me, kept, stored, ahead, now, value, h, at_h, sums, zero)``,
    which computes the thread's share of all sums of ``abreast`` sequences, ``sums [abreast * rows]``.

    The first sequence's first value is ``h[at_h]``, the next one's ``longest`` further on. ``ahead [far *
    rows]`` are the first round's weights from L2, before and after; ``now [4 * quads]`` registers.
    """
    rows, lanes, held, near, far = s.rows, s.lanes, s.held, s.near, s.far
    rounds, abreast, longest, threads = s.rounds, s.abreast, s.longest, s.threads
    each, room, quads = near + far, s.sums, s.quads
    unknown = int(far > 0)  # a known number of rounds would be unrolled, with more registers for loads ahead
    fetch = reading(s, far)

    @device_function
    def term(d, kept, value, h, at_h, sums):
        for j in range(abreast):
            value[j] = h[at_h + np.uint32(j * longest + d * lanes)]
        for i in range(rows):
            for j in range(abreast):
                sums[j * rows + i] += kept[d * rows + i] * value[j]

    @device_function
    def quad(q, stored, at, now):
        for e in range(QUAD):
            now[q * QUAD + e] = stored[at + np.uint32(q * QUAD * threads + e)]

    from_registers, from_shared, from_l2 = _each(held, term), _each(near, term), _each(far, term)
    read = _each(quads, quad)

    @device_function
    def multiply(weights, row_at, first, depth, me, kept, stored, ahead, now, value, h, at_h, sums, zero):
        for i in range(room):
            sums[i] = f(0.0)
        from_registers(0, kept, value, h, at_h, sums)
        for turn in range(rounds + unknown * zero):
            to = np.uint32(at_h + np.uint32((held + turn * each) * lanes))
            read(0, stored, np.uint32(QUAD * (me + turn * (quads * threads))), now)
            from_shared(0, now, value, h, to, sums)
            from_l2(0, ahead, value, h, np.uint32(to + np.uint32(near * lanes)), sums)
            after = turn + 1 if turn + 1 < rounds else 0
            fetch(0, weights, row_at, first + (held + near + after * each) * lanes, depth, ahead)

    return multiply
