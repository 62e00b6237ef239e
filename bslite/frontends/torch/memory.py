"""Where a traced tensor lies: views of one tensor lie in the same memory."""

from typing import Any

from bslite.frontends.common.lazy import load_torch

LIES = "memory"  # key in a node's notes: the place of `memory`, where its traced tensor does not say it


def memory(node: Any) -> int | None:
    """A number for the memory a node's tensor lies in; views of a tensor share it."""
    if hasattr(node, "meta") and LIES in node.meta:
        return int(node.meta[LIES])
    value = node.meta.get("val") if hasattr(node, "meta") else None
    if not isinstance(value, load_torch().Tensor):
        return None
    try:
        place: int = value.untyped_storage()._cdata
    except NotImplementedError:  # a tensor within a transform, such as vmap
        return None
    return place
