"""Change of dtype."""

import numpy as np

from bslite.errors import IntegerRangeError
from bslite.reference.registry import Array, reference


@reference("cast")
def cast(x: Array, *, to: str) -> Array:
    """``x`` as ``to``: towards zero to integers, ``x != 0`` to bool. IntegerRangeError where no
    integer holds it.
    """
    if to not in ("float32", "bool") and x.dtype.kind in "fiu":
        # the least number is a float; one beyond the largest is the first that does not fit
        least = float(np.iinfo(to).min)
        edge = 2.0 ** (np.iinfo(to).bits - (np.dtype(to).kind == "i"))
        with np.errstate(invalid="ignore"):
            wrong = ~((np.trunc(x) >= least) & (np.trunc(x) < edge))
        if wrong.any():
            raise IntegerRangeError(f"{x[wrong].flat[0]} cannot be made {to}")
    # float32 stands for the precision the oracle runs in: wide here, rounded by the executor
    return x.astype(
        np.float64 if to == "float32" and x.dtype.kind != "f" else x.dtype if to == "float32" else to
    )
