"""What an item of a step computes: some lines of an image by some panels; one of several matrices."""

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
