"""The interpreter but for what `semantics` says: `loop` puts that in; nobody imports this file as it is.

Column numbers of an instruction are `text.COLUMNS`.
"""

# ruff: noqa: F401, F403, F405  (names of `loop`, also for the lines that it puts in)
import math

import numpy as np
from numba import njit

from support.ptx.loop import *

RUNNING, WAITING, OVER, ABSENT = 0, 1, 2, 3
THREADS = np.int64(1) << 16
EPOCHS = np.int64(1) << 40


@njit(cache=True, error_model="numpy")
def allowed(region, address, size, store):
    """Whether a region has these bytes: `machine.Region` as a row."""
    if address < region[0] or address + size > region[0] + region[1] or (store and region[2] == 0):
        return False
    cell, end = (address - region[3]) // 4, (address + size - region[3]) // 4
    return (
        region[5] <= cell % region[4]
        and (end - 1) % region[4] < region[6]
        and (region[4] == 1 or cell // region[4] == (end - 1) // region[4])
    )


@njit(cache=True, error_model="numpy")
def conflicts(other, mark, block):
    """Whether what is marked ``other`` is another thread's, no barrier between; -1 is none's, -2 many's."""
    if other < 0 or other == mark:
        return other == -2
    return other // EPOCHS != block or other // THREADS == mark // THREADS


@njit(cache=True, error_model="numpy")
def among(seen, count, number):
    """Whether one of the first ``count`` is the number, which is put behind them if not."""
    for k in range(count - 1, -1, -1):
        if seen[k] == number:
            return True
    seen[count] = number
    return False


@njit(cache=True, error_model="numpy")
def go_to(places, act, place):
    """The threads that act are at a place."""
    for t in range(32):
        if act[t]:
            places[t] = place


@njit(cache=True, error_model="numpy")
def wrong(info, what, place, thread, address, other):
    """``what``, with ``info`` on it."""
    info[0], info[1], info[2], info[3] = place, thread, address, other
    return what


@njit(cache=True, error_model="numpy")
def run(
    code, file_u64, file_s64, file_f64, file_u32, file_s32, file_f32, rows, places, states,
    shared_at, shared_size, written, shared_writer, shared_reader, const_at, const_size,
    regions, shadows, global_writer, global_reader,
    block, order, turn, now, runs, threads_in, waves, sectors, info,
):  # fmt: skip
    """Run a block's warps until all of its threads are done, or have had their turn.

    ``now``: the number of barriers passed, what a reduction over the block has come to, whether a warp that
    spins lets others first. Returns DONE, TURN, or what is wrong, with ``info`` = instruction, thread,
    address, the other thread.
    """
    warps = places.shape[0]
    spare = rows * 32 * warps
    act = np.zeros(32, np.bool_)
    words = np.zeros(128, np.int64)
    banks = np.zeros(32, np.int64)
    products = np.zeros(128, np.float32)  # of matrices
    passed = 0
    while True:
        spun = False
        for turn_of in range(warps):
            w = order[turn_of]
            base = w * rows * 32
            left = turn
            last = now[2] != 0
            while left > 0:
                # Who goes: the threads furthest behind; furthest ahead where those behind wait for these.
                at, behind, some = np.int64(-1), np.int64(1) << 40, False
                for t in range(32):
                    if states[w, t] == RUNNING:
                        p = places[w, t]
                        if not some or (p > at if last else p < at):
                            at = p
                        some = True
                if not some:
                    break
                group = 0
                for t in range(32):
                    mine = states[w, t] == RUNNING and places[w, t] == at
                    act[t] = mine
                    group += mine
                    if states[w, t] == RUNNING and not mine:
                        behind = min(behind, np.int64(places[w, t]))
                if last:
                    behind = np.int64(-1)  # they run until they wait, or others are where they are
                full = group == 32
                pc = at
                while True:
                    i = code[pc]
                    op = i[0]
                    runs[pc] += 1
                    threads_in[pc] += group
                    if op == CONTROL["bra"]:
                        taken = group
                        if i[6] >= 0:
                            g = base + i[6] * 32
                            taken = 0
                            for t in range(32):
                                if act[t] and (file_u64[g + t] != 0) != (i[7] != 0):
                                    taken += 1
                        if taken != 0 and i[1] <= pc:
                            left -= 1
                        if taken == group:
                            pc = i[1]
                        elif taken == 0:
                            pc += 1
                        else:
                            g = base + i[6] * 32
                            for t in range(32):
                                if act[t]:
                                    yes = (file_u64[g + t] != 0) != (i[7] != 0)
                                    places[w, t] = i[1] if yes else pc + 1
                            break
                        if pc >= behind or left <= 0:
                            go_to(places[w], act, pc)
                            break
                        continue
                    A, B, C, D = base + i[2] * 32, base + i[3] * 32, base + i[4] * 32, base + i[5] * 32
                    whole = full and i[6] < 0
                    if i[6] >= 0:
                        g = base + i[6] * 32
                        for t in range(32):
                            act[t] = act[t] and (file_u64[g + t] != 0) != (i[7] != 0)
                    target = base + i[1] * 32
                    T = target if whole else spare
                    kept = True  # whether T is to be put where it belongs
                    if op == CONTROL["ret"]:
                        for t in range(32):
                            if act[t]:
                                states[w, t] = OVER
                            elif states[w, t] == RUNNING and places[w, t] == at:
                                places[w, t] = pc + 1
                        break
                    if op == CONTROL["bar"] or op == CONTROL["bar.or"]:
                        for t in range(32):
                            if act[t]:
                                states[w, t] = WAITING
                                places[w, t] = pc
                                if op == CONTROL["bar.or"] and file_u64[A + t] != 0:
                                    now[1] = 1
                        break
                    if op >= CONTROL["ld.global"]:
                        kept = False
                        width, count = i[9], i[10]
                        size = width * count
                        kind = op - CONTROL["ld.global"]  # bits, by the order of CONTROL
                        coherent, store = kind & 1 != 0, kind & 2 != 0
                        is_shared, const = kind & 4 != 0, kind & 8 != 0
                        seen = 0
                        region = 0
                        for t in range(32):
                            if not act[t]:
                                continue
                            address = np.int64(file_u64[A + t]) + i[8]
                            thread = np.int64(w * 32 + t)
                            if address % size != 0:
                                return wrong(info, MISALIGNED, pc, thread, address, -1)
                            real = address
                            if is_shared:
                                if address < 0 or address + size > shared_size:
                                    return wrong(info, OUTSIDE, pc, thread, address, -1)
                                real = shared_at + address
                                mark = (now[0] + 1) * THREADS + thread
                                for k in range(address // 4, (address + size) // 4):
                                    writer, reader = shared_writer[k], shared_reader[k]
                                    if conflicts(writer, mark, 0) and not coherent:
                                        return wrong(info, SHARED_RACE, pc, thread, address, writer % THREADS)
                                    others = conflicts(reader, mark, 0)
                                    if store:
                                        if others and not coherent:
                                            other = reader % THREADS
                                            return wrong(info, SHARED_RACE, pc, thread, address, other)
                                        shared_writer[k] = mark
                                        written[k] = 1
                                    else:
                                        if written[k] == 0:
                                            return wrong(info, UNWRITTEN, pc, thread, address, -1)
                                        shared_reader[k] = mark - thread + THREADS - 1 if others else mark
                            elif const:
                                if address < 0 or address + size > const_size:
                                    return wrong(info, OUTSIDE, pc, thread, address, -1)
                                real = const_at + address
                            else:
                                if not allowed(regions[region], address, size, store):
                                    region = -1
                                    for r in range(regions.shape[0]):
                                        if allowed(regions[r], address, size, store):
                                            region = r
                                            break
                                    if region < 0:
                                        return wrong(info, OUTSIDE, pc, thread, address, -1)
                                mark = block * EPOCHS + (now[0] + 1) * THREADS + thread
                                first = shadows[region] + (address - regions[region, 0]) // 4
                                for k in range(first, first + size // 4):
                                    writer, reader = global_writer[k], global_reader[k]
                                    if store and width == 4 and writer >= 0:
                                        # Two threads may write one value.
                                        V = base + i[11 + k - first] * 32 + t
                                        there = peek4(np.uint64(real + 4 * (k - first)))
                                        if there == file_u32[2 * V]:
                                            continue
                                    if not coherent and conflicts(writer, mark, block):
                                        return wrong(info, GLOBAL_RACE, pc, thread, address, writer)
                                    others = conflicts(reader, mark, block)
                                    if store:
                                        if not coherent and others:
                                            return wrong(info, GLOBAL_RACE, pc, thread, address, reader)
                                        global_writer[k] = -1 if coherent else mark
                                    elif not coherent:
                                        global_reader[k] = -2 if others else mark
                                # Sectors of 32 bytes that the warp's accesses touch.
                                for sector in range(address // 32, (address + size - 1) // 32 + 1):
                                    if not among(words, seen, sector):
                                        seen += 1
                            for v in range(count):
                                V = base + i[11 + v] * 32 + t
                                place = np.uint64(real + v * width)
                                if store:
                                    if width == 4:
                                        poke4(place, file_u32[2 * V])
                                    else:
                                        poke8(place, file_u64[V])
                                elif width == 8:
                                    file_u64[V] = peek8(place)
                                elif i[3] != 0:
                                    file_s64[V] = np.int64(np.int32(peek4(place)))
                                else:
                                    file_u64[V] = np.uint64(peek4(place))
                        if is_shared:
                            # 128 bytes at once: all accesses of 4 bytes, half a warp's of 8, and so on.
                            for first in range(0, 32, 128 // size):
                                seen, most = 0, 0
                                banks[:] = 0
                                for t in range(first, first + 128 // size):
                                    if act[t]:
                                        address = np.int64(file_u64[A + t]) + i[8]
                                        if not store and count == 1 and i[11] == i[2]:
                                            continue  # the address is gone: the load has put its value there
                                        for word in range(address // 4, (address + size) // 4):
                                            if not among(words, seen, word):
                                                seen += 1
                                                banks[word % 32] += 1
                                                most = max(most, banks[word % 32])
                                waves[pc] += most
                        elif not const:
                            sectors[pc] += seen
                    elif op == CONTROL["shfl.bfly"]:
                        for t in range(32):
                            if act[t]:
                                member = file_u32[2 * (D + t)]
                                other = t ^ np.int64(file_u32[2 * (B + t)])
                                for k in range(32):
                                    named = (member >> np.uint32(k)) & np.uint32(1)
                                    if (named and not act[k] and states[w, k] < OVER) or (
                                        k == t and not named
                                    ):
                                        return wrong(info, SHUFFLE, pc, w * 32 + t, 0, w * 32 + k)
                                if other > 31 or not act[other] or file_u32[2 * (C + t)] != 31:
                                    return wrong(info, SHUFFLE, pc, w * 32 + t, 0, w * 32 + other)
                                file_u32[2 * (spare + t)] = file_u32[2 * (A + other)]
                                file_u64[base + i[11] * 32 + t] = 1
                        T = spare
                        whole = False
                    elif op == CONTROL["mma"]:
                        for t in range(32):
                            if not act[t]:
                                return wrong(info, SHUFFLE, pc, w * 32 + t, 0, w * 32 + t)
                        for t in range(32):  # sums of rows t/4 and t/4 + 8, columns 2*(t%4) and one more
                            for v in range(4):
                                m, n = t // 4 + v // 2 * 8, t % 4 * 2 + v % 2
                                total = np.float64(file_f32[2 * (base + i[17 + v] * 32 + t)])
                                for k in range(8):
                                    left = base + i[2 + k // 4 * 2 + m // 8] * 32 + m % 8 * 4 + k % 4
                                    right = base + i[15 + k // 4] * 32 + n * 4 + k % 4
                                    a, b = tf32(file_u32[2 * left]), tf32(file_u32[2 * right])
                                    total += np.float64(a) * np.float64(b)
                                products[v * 32 + t] = cut_off(total)
                        for v in range(4):
                            for t in range(32):
                                file_f32[2 * (base + i[11 + v] * 32 + t)] = products[v * 32 + t]
                        kept = False
                    elif op == CONTROL["pack"]:
                        for t in range(32):
                            low = np.uint64(file_u32[2 * (A + t)])
                            file_u64[T + t] = low | (np.uint64(file_u32[2 * (B + t)]) << np.uint64(32))
                    elif op == CONTROL["unpack"]:
                        high = base + i[3] * 32
                        for t in range(32):
                            if act[t]:
                                both = file_u64[A + t]
                                file_u64[target + t] = both & np.uint64(0xFFFFFFFF)
                                file_u64[high + t] = both >> np.uint64(32)
                        kept = False
                    elif op == CONTROL["nothing"]:
                        kept = False
                    else:
                        calculate(
                            op, A, B, C, D, T, file_u64, file_s64, file_f64, file_u32, file_s32, file_f32
                        )
                    if kept and not whole:
                        for t in range(32):
                            if act[t]:
                                file_u64[target + t] = file_u64[T + t]
                    if i[6] >= 0:
                        for t in range(32):
                            act[t] = states[w, t] == RUNNING and places[w, t] == at
                    pc += 1
                    if pc >= behind:
                        go_to(places[w], act, pc)
                        break
            if left <= 0:
                spun = True
        waiting, going, alive, stop = 0, 0, 0, np.int64(-1)
        for w in range(warps):
            for t in range(32):
                if states[w, t] == WAITING:
                    waiting += 1
                    if stop >= 0 and places[w, t] != stop:
                        return wrong(info, BARRIER, stop, w * 32 + t, 0, places[w, t])
                    stop = places[w, t]
                if states[w, t] == RUNNING:
                    going += 1
                alive += states[w, t] < OVER
        if alive == 0:
            return DONE
        if waiting == alive:
            for w in range(warps):
                for t in range(32):
                    if states[w, t] == WAITING:
                        states[w, t] = RUNNING
                        places[w, t] += 1
                        if code[stop, 0] == CONTROL["bar.or"]:
                            file_u64[(w * rows + code[stop, 1]) * 32 + t] = now[1]
            now[0] += 1
            now[1] = 0
            passed += 1
            if passed * 32 > turn:  # a block may wait for others with a barrier in its loop
                return TURN
            continue
        if spun:
            now[2] = 1 - now[2]
            return TURN


@njit(cache=True, error_model="numpy")
def calculate(op, A, B, C, D, T, file_u64, file_s64, file_f64, file_u32, file_s32, file_f32):
    """One instruction of all threads of a warp."""
    if op < 0:
        return
    # FREQUENT
    else:
        for t in range(32):  # noqa: B007
            if op < 0:
                return
            # OTHERS
