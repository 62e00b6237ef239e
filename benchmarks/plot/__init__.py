"""Pictures of results, drawn from their JSON: nothing is measured here."""

from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.plot import deepbench, deepbench_space, depth_first, gpu, peers, spatial, stacks, style

DRAWINGS = {
    "peers": peers.figure,
    "stacks": stacks.figure,
    "depth_first": depth_first.figure,
    "spatial": spatial.figure,
    "deepbench": deepbench.figure,
    "deepbench_space": deepbench_space.figure,
    "gpu": gpu.figure,
}


def draw(data: dict[str, Any], path: Path) -> None:
    """Draw what one of the commands wrote; the kind of picture is ``path``'s suffix, .svg or .png."""
    # Files from before the commands named themselves are all of the peers.
    figure = DRAWINGS[data.get("benchmark", "peers")]
    with matplotlib.rc_context(style.RC):
        style.save(figure(data), path)
