"""What an item of a step computes: some lines of an image by some panels; one of several matrices. And of a
line: the places that lie within the image, cut into register tiles.
"""

from numba.extending import register_jitable


@register_jitable
def part_of(s, item):
    """The image of an item, its first and past-the-last line, its first and past-the-last panel. The images
    are the inner loop if ``blocks_outer``: where weights are larger than they.
    """
    images, bands, blocks = s.images, s.bands, s.blocks
    if s.blocks_outer:
        block, rest = item // (images * bands), item % (images * bands)
    else:
        block, rest = item % blocks, item // blocks
    image, band = rest // bands, rest % bands
    line, panel = band * s.band_lines, block * s.block_panels
    return image, line, min(s.lines, line + s.band_lines), panel, min(s.panels, panel + s.block_panels)


@register_jitable
def matrix_of(s, item):
    """Where the matrix of an item begins, where its panels do, its first and past-the-last panel."""
    block, matrix = item % s.blocks, item // s.blocks
    n1, n2 = s.n1, s.n2
    x = s.source + matrix // (n1 * n2) * s.x0 + matrix // n2 % n1 * s.x1 + matrix % n2 * s.x2
    first = block * s.block_panels
    return x, s.target + matrix * s.matrix_bytes, first, min(s.panels, first + s.block_panels)


@register_jitable
def places_inside(first, step, count, size):
    """First and past-the-last of ``count`` places, ``step`` apart from ``first`` on, in an image of ``size``
    rows (or columns, or planes).
    """
    low = 0 if first >= 0 else min(count, (step - 1 - first) // step)
    high = 0 if first >= size else min(count, (size - first + step - 1) // step)
    return low, max(low, high)


@register_jitable
def cut_run(pixels, most):
    """The fewest tiles of at most ``most`` pixels: their numbers and heights, as `Cut` has them."""
    tiles = max(1, (pixels + most - 1) // most)
    low, high = pixels // tiles, pixels % tiles
    if high == 0:
        return tiles if pixels else 0, low, 0, low
    return high, low + 1, tiles - high, low
