"""Buckets of distances: a logarithm of zero, cut to an integer, that a choice behind it discards.

T5 and its kin put a distance n in the bucket ``where(n < c, n, c + (log(n / c) * f).long())``. At n = 0 the
integer is that of minus infinity, of which the engine says that there is none.
"""

from typing import Any

from bslite.frontends.torch.builders import operation

CONVERSIONS = ("to", "_to_copy", "float", "type_as")
SCALES = ("add", "sub", "mul", "div")
FILLS = ("full_like", "zeros_like", "ones_like")  # which read no elements
POINTWISE = (*SCALES, "rsub", "min", "max", "minimum", "maximum", "clamp", "clamp_min", "clamp_max")


def zero_is_discarded(cast: Any) -> bool:
    """Whether ``cast`` makes integers of the scaled logarithm of scaled numbers n, chosen only where n is not
    less than a number above zero.
    """
    logarithm = _behind(cast.args[0], SCALES)[-1]
    if operation(logarithm) != "log":
        return False
    scaled = _behind(logarithm.args[0], ("mul", "div", *CONVERSIONS))
    while len(users := [u for u in cast.users if operation(u) not in FILLS]) == 1:
        (user,) = users
        if operation(user) == "where":
            small = user.args[0]
            return user.args[2] is cast and user.args[1] is not cast and _is_less(small, scaled)
        if operation(user) not in POINTWISE:
            return False
        cast = user
    return False


def _behind(node: Any, operations: tuple[str, ...]) -> list[Any]:
    """``node``, and what it is made of by ``operations`` with numbers."""
    found = [node]
    while operation(found[-1]) in operations and len(found[-1].all_input_nodes) == 1:
        found.append(found[-1].args[0])
    return found


def _is_less(condition: Any, scaled: list[Any]) -> bool:
    """Whether ``condition`` is n < c for a number c above zero and one of ``scaled``."""
    if operation(condition) != "lt" or condition.args[0] not in scaled:
        return False
    most = condition.args[1]
    return isinstance(most, (int, float)) and most > 0
