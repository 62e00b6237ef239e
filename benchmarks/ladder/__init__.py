"""The kernel ladder: one convolution, from three plain loops to the engine's rate, one idea a step.

Each step is a file, headed by the idea it adds, with ``prepare(problem, threads)`` that gives a call
computing the whole convolution as ``[pixels, channels]``. See docs/kernels.md for what each step brought.
"""

import importlib
import pkgutil

STEPS = tuple(
    importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)  # in the order of their names
    if module.name.startswith("step")
)
