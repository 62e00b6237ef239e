"""A stack of layers, depth-first: one thread takes one image through a whole program of its own.

What lies between the layers stays in this thread's scratch memory, and so in its cache; nothing but the
stack's inputs and outputs has a place for every image of the batch. The layers are ordinary steps; only the
base addresses they see differ from thread to thread and image to image.
"""

from __future__ import annotations

from bslite.kernels.cpu.compile import CELLS, call_item, record, step_kernel
from bslite.kernels.cpu.simd import load_int, store_int

# `program`, `count`: the steps. `bases`, `entries`: a template of their base addresses, to be completed
# by `ends`, `end_count`: rows of END. `arena_at`: where in scratch memory the stack's arena starts.
F = record("stack", "program count bases entries ends end_count arena_at")
END = ("entry", "base", "offset", "image")  # which entry; which outer base, bytes from it, bytes per image


@step_kernel("stack", F)
def stack(step, bases, item, scratch):
    """All layers for one image."""
    template = load_int(step + F.bases)
    for i in range(load_int(step + F.entries)):
        store_int(scratch + 8 * i, load_int(template + 8 * i))
    store_int(scratch, scratch + load_int(step + F.arena_at))
    ends = load_int(step + F.ends)
    for i in range(load_int(step + F.end_count)):
        end = ends + 32 * i
        outer = load_int(bases + 8 * load_int(end + 8)) + load_int(end + 16) + item * load_int(end + 24)
        store_int(scratch + 8 * load_int(end), outer)
    program = load_int(step + F.program)
    for s in range(load_int(step + F.count)):
        sub = program + s * CELLS * 8
        kernel, items = load_int(sub), load_int(sub + 8)
        for i in range(items):
            call_item(kernel, sub, scratch, i, scratch)
