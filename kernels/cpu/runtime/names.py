"""Names of compiled functions, told apart between processes.

Numba numbers the functions that it compiles from 1 on in each process, and the number is all that tells
closures of one place in the source apart (the sweeps of two reductions, say). Kernels that are kept on disk
come from several processes, and the linker takes functions of one name for one function: a kernel would run
another one's sweep. So each process numbers from a place of its own on, also one that is forked.
"""

import itertools
import os
import secrets

from numba.core.bytecode import FunctionIdentity

PLACES, ROOM = 2**40, 2**20  # where a process may begin, and the functions that it compiles before the next


def begin() -> None:
    """Number from another place on. AttributeError: this Numba numbers its functions otherwise."""
    next(FunctionIdentity._unique_ids)
    FunctionIdentity._unique_ids = itertools.count(secrets.randbelow(PLACES) * ROOM + 1)


begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin)
