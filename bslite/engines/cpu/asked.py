"""Kernels that make one number of the rows of a table, called from Python as cheaply as may be."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt


def asked(kernel: Any, table: npt.NDArray[np.int64]) -> Callable[[], int]:
    """What calls ``kernel(table, rows, result)`` and returns the number that it stores."""
    cell = ctypes.c_int64()
    # Called with the interpreter's lock held, so that two threads do not share the result's cell.
    function = ctypes.PYFUNCTYPE(None, *[ctypes.c_int64] * 3)(kernel.address)
    arguments = table.ctypes.data, len(table), ctypes.addressof(cell)

    def ask(held: Any = table) -> int:  # which keeps the table's memory
        function(*arguments)
        return cell.value

    return ask
