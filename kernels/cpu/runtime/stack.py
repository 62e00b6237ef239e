"""A stack of layers, depth-first: one thread takes one image, or a band of its rows, through a whole program.

Values between the layers stay in this thread's scratch memory, and so in its cache; only the stack's inputs
and outputs have a place for every image of the batch. The layers are ordinary steps; the base addresses that
they see differ from thread to thread, image to image and band to band.
"""

from bslite.kernels.contracts.cpu.stack import Stacked
from bslite.kernels.cpu.runtime.compile import CELLS, call_item, step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_int, store_int

# Items: images x bands. `table`: the address of one row of BAND for each band.
F = reader(Stacked)
# `program`, `count`: the steps. `bases`, `entries`: a template of their base addresses, which `ends`,
# `end_count` (rows of END) complete. `arena_at`: the start of the stack's arena in scratch memory;
# `free_at`: the start of what a stack within this one may use.
BAND = ("program", "count", "bases", "entries", "ends", "end_count", "arena_at", "free_at")
END = ("entry", "base", "offset", "image")  # which entry; which outer base, bytes from it, bytes per image
ROW = 8 * len(BAND)  # bytes


@step_kernel(Stacked)
def stack(step, bases, item, scratch):
    """Runs all layers for one band of one image."""
    s = F(step, bases)
    image, band = item // s.bands, s.table + item % s.bands * ROW
    template = load_int(band + 16)
    for i in range(load_int(band + 24)):
        store_int(scratch + 8 * i, load_int(template + 8 * i))
    store_int(scratch, scratch + load_int(band + 48))
    ends = load_int(band + 32)
    for i in range(load_int(band + 40)):
        end = ends + 32 * i
        outer = load_int(bases + 8 * load_int(end + 8)) + load_int(end + 16) + image * load_int(end + 24)
        store_int(scratch + 8 * load_int(end), outer)
    program, free = load_int(band), scratch + load_int(band + 56)
    for number in range(load_int(band + 8)):
        sub = program + number * CELLS * 8
        kernel, items = load_int(sub), load_int(sub + 8)
        store_int(free, 0)
        for i in range(items):
            call_item(kernel, sub, scratch, i, free)
