"""The judge of models that round at run time: what their file defines, computed exactly.

Such a model rounds values to 8 bits by scales that it computes. A float32 rounding may turn one of them by a
unit, and what follows makes more of that: two right answers may be far apart. And onnxruntime's sums of
products of bytes saturate on x86 machines without VNNI, unless it is asked not to. So the truth is the
float64 answer of the reference, whose sums of integers are exact; onnxruntime is asked to be exact, on one
thread; and the reference in float32 shows how far float32 roundings alone lead.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bslite
from benchmarks import rivals
from bslite.spec import Array
from bslite.verification import check, relative_error

#: onnxruntime's option that keeps sums of products of bytes from saturating.
EXACT = "session.x64quantprecision"
#: onnxruntime's answer may be as far from the float64 one as this, or as so many times float32's spread.
SAME, SPREADS = 1e-2, 4.0


def rounds_at_run_time(path: Path) -> bool:
    """Whether a node of the file quantises by a scale that it computes."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    return any(node.op_type.startswith("DynamicQuantize") for node in graph.node)


def careful(path: Path, feed: Mapping[str, Array]) -> list[Any]:
    """onnxruntime's outputs of sums that do not saturate, with all rows of a batch rounded together."""
    session = rivals.onnxruntime_session(str(path), 1, quiet=True, entries={EXACT: "1"})
    made: list[Any] = session.run(None, dict(feed))
    return made


def in_float32(path: Path, feed: Mapping[str, Array]) -> list[Array]:
    """The reference's outputs in float32."""
    return list(bslite.compile(path, device="reference")(dict(feed)).tuple())


def verdict(
    names: Sequence[str],
    got: Sequence[Array],
    truth: Sequence[Array],
    theirs: Sequence[Array],
    floats: Sequence[Array],
) -> tuple[list[str], float, float] | None:
    """What is wrong, and the largest errors of bslite and of onnxruntime (``theirs``) against ``truth``.

    An error is at most four times onnxruntime's, or four times that of the reference in float32 (``floats``).
    None if onnxruntime is further away than roundings explain: the two compute different things.
    """
    wrong, errors, peers = [], [0.0], [0.0]
    for name, g, t, w, f in zip(names, got, truth, theirs, floats, strict=True):
        spread, peer = relative_error(f, t), relative_error(w, t)
        if not peer <= max(SAME, SPREADS * spread):
            return None
        found = max((check(name, "output", g, t, other) for other in (w, f)), key=lambda c: c.bound)
        errors.append(found.error)
        peers.append(peer)
        if not found.passed:
            wrong.append(f"output {name!r}: error {found.error:.1e}, bound {found.bound:.1e}")
    return wrong, max(errors), max(peers)
