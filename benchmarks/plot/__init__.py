"""Pictures of results, drawn from their JSON: nothing is measured here."""

from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.plot import (
    deepbench,
    deepbench_space,
    depth_first,
    gpu,
    parallelism,
    peers,
    serving,
    spatial,
    stacks,
    style,
    training,
)

MODULES = (
    peers,
    stacks,
    depth_first,
    spatial,
    deepbench,
    deepbench_space,
    gpu,
    training,
    parallelism,
    serving,
)
#: Commands whose results are tables alone.
TABLES = ("busy", "corpus", "few_bits", "huggingface", "quantised")
DRAWINGS = {module.__name__.rpartition(".")[2]: module.figure for module in MODULES}


def draw(data: dict[str, Any], path: Path) -> None:
    """Draw what one of the commands wrote; the kind of picture is ``path``'s suffix, .svg or .png."""
    # Files from before the commands named themselves are all of the peers.
    figure = DRAWINGS[data.get("benchmark", "peers")]
    with matplotlib.rc_context(style.RC):
        style.save(figure(data), path)
