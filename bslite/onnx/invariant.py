"""States of a Loop that no step changes: the body reads them from around it instead.

Exporters hand weights through a loop as states (Paddle's do so with all of them). Read from around it, what
is constant there is constant within: products pack it, and what is made of it alone is folded.
"""

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.control import origin


def unchanged(body: Any, given: Sequence[str]) -> list[int]:
    """The states of a Loop, by number, that its ``body`` gives back as it took them.

    ``given``: names around the loop of the values at its start. One that the body calls something else
    by is left out.
    """
    taken = [v.name for v in body.input]
    own = {*taken, *(t.name for t in body.initializer), *(o for n in body.node for o in n.output)}
    found = []
    for i, outer in enumerate(given):
        name = taken[2 + i]
        if origin(body, 1 + i) == name and outer and (outer == name or outer not in own):
            found.append(i)
    return found


def without(body: Any, given: Sequence[str], states: Sequence[int]) -> Any:
    """The ``body`` without some of its states, which it reads from around it by the names in ``given``."""
    onnx = load_onnx()
    made = onnx.GraphProto()
    made.CopyFrom(body)
    gone = set(states)
    del made.input[:], made.output[:], made.node[:]
    made.input.extend(v for i, v in enumerate(body.input) if i - 2 not in gone)
    made.output.extend(v for i, v in enumerate(body.output) if i - 1 not in gone)
    for i in states:
        outer, name = given[i], body.input[2 + i].name
        if outer != name:
            made.node.append(onnx.helper.make_node("Identity", [outer], [name]))
    made.node.extend(body.node)
    return made
