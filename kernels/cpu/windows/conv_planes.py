"""Convolutions over planes of contiguous pixels: row-major images, signals and volumes as they lie.

What the windows of a strip read is copied to scratch memory first, with the zeros beside the image: there,
any tap of any strided or dilated filter reads neighbouring elements. Sums lie in scratch memory, too, until
they are finished in y, line by line. So no register tile meets an edge.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.conv_planes import ConvPlanes
from bslite.kernels.contracts.cpu.sweep import PlaneSweep
from bslite.kernels.cpu.gemm.plane_tile import plane_tile
from bslite.kernels.cpu.math.activation import activate
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.record import planes_of, reader
from bslite.kernels.cpu.vector.memory import (
    every,
    load,
    load_int,
    load_scalar,
    load_some,
    prefetch,
    store,
    store_scalar,
    store_some,
)
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat, vmax, vmin

F = reader(ConvPlanes)
f = np.float32
ENTRY = 16  # bytes of the entry of a phase
call_plane_sweep = caller(12)


@makes(PlaneSweep)
@functools.cache
def plane_sweep(vecs: int, most: int, bias_first: bool, lines: bool) -> Kernel:
    """A kernel of ``tiles`` neighbouring tiles of ``rows`` (at most ``most``) outputs, or lines."""
    tile = plane_tile(vecs, most, bias_first, lines)

    def sweep(rows, tiles, x, x_line, offsets, terms, filter_rows, w, bias, resume, c, c_row):
        for _ in range(tiles):
            tile(rows, x, x_line, offsets, terms, filter_rows, w, bias, resume, c, c_row)
            x += vecs * BYTES
            c += vecs * BYTES

    name = f"plane_sweep_{most}x{vecs}" + "_bias_first" * bias_first + "_lines" * lines
    return Kernel(sweep, name, 12)


@register_jitable
def _zeros(target, count):
    """Writes at least ``count`` zeros, up to a register more."""
    for at in range(0, 4 * count, BYTES):
        store(target + at, splat(f(0.0)))


def _every_of(stride):
    """Copies elements ``stride`` apart, of which whole registers are at hand."""
    some = every(stride)

    @register_jitable
    def copied(place, left, target, count):
        """Copies ``count`` elements, while the line has registers of them ``left``; returns how many."""
        done = 0
        while done + LANES <= count and stride * (done + LANES) <= left:
            store(target + 4 * done, some(place + 4 * stride * done))
            done += LANES
        return done

    return copied


_second, _third, _fourth = _every_of(2), _every_of(3), _every_of(4)


@register_jitable
def _inside(place, left, stride, count, ahead, target):
    """Copies ``count`` elements ``stride`` apart, of a line of which ``left`` elements are left; writes up to
    a register more.
    """
    done = 0
    if stride == 1:
        while done + LANES <= count:
            if ahead:
                prefetch(place + 4 * done + ahead)
            store(target + 4 * done, load(place + 4 * done))
            done += LANES
        if done < count:
            store(target + 4 * done, load_some(place + 4 * done, count - done))
        return
    if stride == 2:
        done = _second(place, left, target, count)
    elif stride == 3:
        done = _third(place, left, target, count)
    elif stride == 4:
        done = _fourth(place, left, target, count)
    for i in range(done, count):
        store_scalar(target + 4 * i, load_scalar(place + 4 * stride * i))


@register_jitable
def _phase(s, plane, high, row, column, lines, target):
    """Copies what the windows of a strip read of one phase: so many lines from a row and column on, zeros in
    place of what is outside. The plane has ``high`` lines.
    """
    pitch, down, right, width, ahead, x_line = s.pitch, s.stride1, s.stride2, s.size2, s.ahead, s.x_step1
    lead = min(pitch, (right - 1 - column) // right) if column < 0 else 0
    begin = column + lead * right
    inside = max(0, min(pitch - lead, (width - begin + right - 1) // right))
    behind = pitch - lead - inside
    for _ in range(lines):
        if 0 <= row < high:
            if lead:
                _zeros(target, lead)
            to = target + 4 * lead
            _inside(plane + row * x_line + 4 * begin, width - begin, right, inside, ahead, to)
            if behind:
                _zeros(to + 4 * inside, behind)
        else:
            _zeros(target, pitch)
        target += 4 * pitch
        row += down


@register_jitable
def _gather(s, x, depth, line, pixel, lines, target):
    """Copies what the windows of a strip read: of output plane ``depth``, from a line and pixel on."""
    phases, table, each, wanted = s.phases, s.table, 4 * s.pitch * s.rows, lines + s.more
    top, side = s.first1 + line * s.stride1, s.first2 + pixel * s.stride2
    for channel in range(s.inputs):
        for k in range(s.filter_planes):
            at = s.first0 + depth * s.stride0 + k * s.apart
            plane = x + channel * s.x_channel + at * s.x_step0
            high = s.size1 if 0 <= at < s.size0 else 0
            for phase in range(phases):
                entry = table + phase * ENTRY
                _phase(s, plane, high, top + load_int(entry), side + load_int(entry + 8), wanted, target)
                target += each


@register_jitable
def _run(s, rows, x, offsets, terms, w, bias, resume, c, c_row, pixels):
    """The sums of ``pixels`` neighbouring ones, for ``rows`` outputs or lines."""
    tiles = (pixels + s.vecs * LANES - 1) // (s.vecs * LANES)
    call_plane_sweep(s.sweep, rows, tiles, x, 4 * s.pitch, offsets, terms, s.filter_rows, w, bias, resume, c,
                     c_row)  # fmt: skip


@register_jitable
def _sums(s, rows, x, w, bias, c, c_row, pixels):
    """The sums of a run of pixels for ``rows`` outputs, part by part."""
    terms, part, offsets = s.terms, s.part, s.offsets
    for done in range(0, terms, part):
        count = min(part, terms - done)
        _run(s, rows, x, offsets + 8 * done, count, w + 4 * done * rows, bias, done, c, c_row, pixels)


@register_jitable
def _finish(s, c, lines, pixels, y, residual):
    """Clamps sums and writes them to y."""
    lo, hi, pitch, y_line, r_line = splat(s.lo), splat(s.hi), 4 * s.sums_pitch, s.y_step1, s.r_step1
    has_residual, activation, to = s.has_residual, s.activation, y
    for _ in range(lines):
        for at in range(0, 4 * pixels, BYTES):
            left, value = pixels - at // 4, load(c + at)
            if has_residual:
                value = value + load_some(residual + at, left)
            store_some(to + at, vmin(hi, vmax(lo, value)), left)
        c += pitch
        to += y_line
        residual += r_line
    if activation:
        activate(activation, y, lines, y_line, pixels, s.act_a_cell)


@step_kernel(ConvPlanes)
def conv_planes(step, bases, item, scratch):
    """Computes some strips of some planes of all outputs of a group."""
    s = F(step, bases)
    first, last, first_strip, last_strip = planes_of(s, item, s.strips)
    groups, outputs, terms, pitch, c_row = s.groups, s.outputs, s.terms, s.pitch, 4 * s.sums_size
    tiles1, rows1, tiles2, rows2 = s.tiles1, s.rows1, s.tiles2, s.rows2
    c, at_once, y_line, r_line = scratch + 4 * s.sums_at, s.lines_at_once, s.y_step1, s.r_step1
    for plane in range(first, last):
        depth, group = plane % s.depths, plane // s.depths % groups
        image = plane // (s.depths * groups)
        x = s.x + image * s.x_image + group * s.inputs * s.x_channel
        weights = s.weights + 4 * group * outputs * terms * s.filter_rows
        for strip in range(first_strip, last_strip):
            line, pixel = strip // s.across * s.strip_lines, strip % s.across * s.strip_pixels
            lines, pixels = min(s.strip_lines, s.lines - line), min(s.strip_pixels, s.pixels - pixel)
            _gather(s, x, depth, line, pixel, lines, scratch)
            output, w = group * outputs, weights
            run = (lines - 1) * pitch + pixels
            y = s.y + image * s.y_image + depth * s.y_step0 + line * y_line + 4 * pixel
            residual = s.residual + image * s.r_image + depth * s.r_step0 + line * r_line + 4 * pixel
            if at_once:
                for i in range(0, lines, at_once):
                    many, there = min(at_once, lines - i), y + output * s.y_channel + i * y_line
                    _run(s, many, scratch + 4 * i * pitch, s.offsets, terms, w, s.bias + 4 * output, 0, c,
                         4 * s.sums_pitch, pixels)  # fmt: skip
                    _finish(s, c, many, pixels, there, residual + output * s.r_channel + i * r_line)
                continue
            for tile in range(tiles1 + tiles2):
                rows = rows1 if tile < tiles1 else rows2
                _sums(s, rows, scratch, w, s.bias + 4 * output, c, c_row, run)
                for i in range(rows):
                    _finish(s, c + i * c_row, lines, pixels, y + (output + i) * s.y_channel,
                            residual + (output + i) * s.r_channel)  # fmt: skip
                output += rows
                w += 4 * rows * terms
