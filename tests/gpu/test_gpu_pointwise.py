"""The pointwise kernel against the reference's activations."""

import numpy as np
import pytest
from support.gpu_simulate import launch

from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.math.functions import CODES

X = np.array([-3.0, -0.5, -0.0, 0.0, 0.25, 2.0, 90.0, -90.0, np.nan, np.inf, -np.inf], np.float32)


@pytest.mark.parametrize("count", [1, 11, 1030])
def test_ends(count: int) -> None:
    """Elements beyond the count stay as they are."""
    x = np.resize(X, 1100)
    y = launch(
        KERNELS["pointwise"],
        (2,),
        (256,),
        {"x": x, "y": np.full(1100, 7, np.float32), "count": count, "a": 0, "b": 0},
        code=CODES["relu"],
    )["y"]
    np.testing.assert_array_equal(y[:count], np.where(x[:count] < 0, np.float32(0), x[:count]))
    assert (y[count:] == 7).all()
