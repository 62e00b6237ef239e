"""Indices that are the same for all elements of a slice: slices are picked and put, not elements.

So PyTorch Geometric adds up messages: an index for each edge, expanded to the features, and `scatter_add_`.
"""

import math

from bslite.passes.draft import Draft
from bslite.passes.moves import wide_axes
from bslite.spec import Node

SHORTEST = 8  # elements of a slice: four one by one take no longer (decision 078)


def slices_for_elements(draft: Draft, node: Node) -> bool:
    """A `gather_elements`, or a `scatter_elements` along the first axis, whose indices are one for each slice
    along the axis; slices are not short.
    """
    x, indices, *updates = node.inputs
    rank = len(draft.shape(x))
    axis, made_by = node.attrs["axis"] % max(1, rank), draft.nodes.get(indices)
    if rank < 2 or made_by is None or made_by.op != "expand" or (updates and axis):
        return False
    each = made_by.inputs[0]
    if len(draft.shape(each)) != rank or not set(wide_axes(draft, each)) <= {axis}:
        return False
    for shapes in draft.shapes:
        sizes, wanted = list(shapes[indices]), list(shapes[x])
        wanted[axis] = shapes[each][axis]
        if sizes != wanted or math.prod(wanted[axis + 1 :]) < SHORTEST:
            return False
    shape = (-1, 1) if updates else (-1,)
    flat = Node(f"{node.name}/each", "reshape", (each,), attrs={"shape": shape})
    if updates:
        attrs = {"reduction": node.attrs["reduction"]}
        draft.put(Node(node.name, "scatter_nd", (x, flat.name, *updates), attrs=attrs), flat)
    else:
        draft.put(Node(node.name, "gather", (x, flat.name), attrs={"axis": axis}), flat)
    return True
