"""A layer's parameters and input as the simulators take them, and as the weight memories hold them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bslite.errors import InputError, WeightsError
from bslite.explore.problem import Recurrent
from bslite.explore.spatial.cells import Array


@dataclass(frozen=True)
class LayerWeights:
    """One layer's parameters, as torch has them, float32; ``H`` hidden units, ``G`` gates, ``I`` inputs."""

    weight_ih: Array  # [G*H, I]
    weight_hh: Array  # [G*H, H]
    bias_ih: Array  # [G*H]
    bias_hh: Array  # [G*H]

    def check(self, problem: Recurrent, layer: int) -> None:
        """Raises WeightsError if they are not those of this layer."""
        rows = problem.gates * problem.hidden
        wanted = {
            "weight_ih": (rows, problem.features(layer)),
            "weight_hh": (rows, problem.hidden),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }
        for name, shape in wanted.items():
            found = getattr(self, name)
            if found.shape != shape or found.dtype != np.float32:
                raise WeightsError(
                    f"layer {layer} of {problem}: {name} is {found.dtype} {list(found.shape)}, "
                    f"expected float32 {list(shape)}"
                )


def random_weights(problem: Recurrent, seed: int = 0) -> list[LayerWeights]:
    """Of the size torch draws them: uniform within 1 / sqrt(hidden)."""
    rng = np.random.default_rng(seed)
    bound = np.float32(problem.hidden**-0.5)
    rows = problem.gates * problem.hidden

    def draw(*shape: int) -> Array:
        drawn: Array = (2 * rng.random(shape, np.float32) - 1) * bound
        return drawn

    return [
        LayerWeights(draw(rows, problem.features(i)), draw(rows, problem.hidden), draw(rows), draw(rows))
        for i in range(problem.layers)
    ]


def random_input(problem: Recurrent, steps: int, seed: int = 1) -> Array:
    """``x [steps, batch, inputs]``."""
    drawn: Array = np.random.default_rng(seed).standard_normal(
        (steps, problem.batch, problem.inputs), np.float32
    )
    return drawn


def check_input(problem: Recurrent, x: Array) -> None:
    """Raises InputError if ``x`` is no input of at most the problem's steps."""
    wanted = (problem.batch, problem.inputs)
    fits = x.ndim == 3 and x.shape[1:] == wanted and 1 <= x.shape[0] <= problem.steps
    if not fits or x.dtype != np.float32:
        raise InputError(
            f"x is {x.dtype} {list(x.shape)}, expected float32 [1 to {problem.steps} steps, "
            f"batch {problem.batch}, {problem.inputs} inputs] for {problem}"
        )


def tiles(weight: Array, rows: NDArray[np.int64], split: int, width: int) -> Array:
    """``weight [M, K]`` cut for an array: ``rows [blocks, P]`` names each block's rows, -1 a row of zeros.

    Gives ``[blocks, chunks, P, split, width]``, columns filled up with zeros: chunk ``k`` of PCU ``s`` holds
    the elements from ``(k * split + s) * width``.
    """
    count, k = weight.shape
    chunks = -(-k // (split * width))
    padded = np.zeros((count + 1, chunks * split * width), np.float32)
    padded[:count, :k] = weight
    out = np.empty((len(rows), chunks, rows.shape[1], split, width), np.float32)
    for block, named in enumerate(rows):
        out[block] = padded[named].reshape(len(named), chunks, split, width).transpose(1, 0, 2, 3)
    return out
