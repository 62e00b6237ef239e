"""The CPU's kernels, compiled before the tests by all processes of a test run together."""

from support.once import once


def warm() -> None:
    """Each kernel is compiled by one process; the others load it from disk when they need it."""
    import bslite.kernels.cpu  # noqa: F401  (registers them)
    from bslite.kernels.cpu.runtime.compile import STEP_KERNELS

    for name, kernel in STEP_KERNELS.items():
        with once(f"kernel {name}", wait=False) as mine:
            if mine:
                _ = kernel.address
    for name in STEP_KERNELS:
        with once(f"kernel {name}"):
            pass  # another process has been at it
