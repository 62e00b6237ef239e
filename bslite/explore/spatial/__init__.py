"""A spatial accelerator (a grid of compute and memory units on a static network): one loop nest against
kernel by kernel.

`loop` and `kernels` each have a mapping, a space and a price; `loop_run` and `kernels_run` execute the same
mappings on simulated units, cycle by cycle, on float32 numbers; `compare` searches and runs all of them.
"""

from bslite.explore.spatial import kernels, loop
from bslite.explore.spatial.machine import SpatialMachine

__all__ = ["SpatialMachine", "kernels", "loop"]
