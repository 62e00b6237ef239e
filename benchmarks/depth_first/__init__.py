"""Depth-first against layer by layer: the same kernels, the same bits, another order."""
