"""The rules that rewrite one node and what it reads, by the op of that node; one pass applies them all."""

from collections.abc import Callable, Mapping, Sequence

from bslite.passes.absorb import (
    constants_behind_moves,
    constants_into_layer,
    groups_by_reshape,
    matrix_into_weight,
    matrix_on_columns,
    padding_into_convolution,
)
from bslite.passes.ahead import computed_ahead
from bslite.passes.complex import conjugate_into_product
from bslite.passes.cut import slice_into_convolution
from bslite.passes.draft import Draft
from bslite.passes.families import CONVS
from bslite.passes.fuse import ACTIVATIONS, BINARY
from bslite.passes.indices import slices_for_elements
from bslite.passes.integers import into_sum, rounded_parts, sum_of_rounded
from bslite.passes.masks import mask_of_all
from bslite.passes.merged import (
    matrix_of_all,
    multiplied_apart,
    permuted_apart,
    permuted_once,
    scaled_apart,
    softmax_apart,
    split_before,
)
from bslite.passes.moves import (
    activation_before_moves,
    arithmetic_before_permutations,
    axes_kept,
    does_nothing,
    permutation_undone,
    two_permutations,
    two_reshapes,
)
from bslite.passes.one_hot import function_into_table, one_hot_product
from bslite.passes.parts import in_parts, odd_blocks_widened
from bslite.passes.through import GRADIENTS, through_activation
from bslite.spec import Node

#: A rule is told a node, may rewrite it, and says whether it did.
Rule = Callable[[Draft, Node], bool]

ARITHMETIC = (does_nothing, into_sum, constants_into_layer, constants_behind_moves, function_into_table)
MOVED = (arithmetic_before_permutations, scaled_apart)
RULES: Mapping[str, Sequence[Rule]] = {
    **dict.fromkeys(BINARY, MOVED),
    **dict.fromkeys(("sub", "mul", "div"), (*ARITHMETIC, *MOVED)),
    "add": (*ARITHMETIC, sum_of_rounded, *MOVED),
    **dict.fromkeys(("pow", "maximum", "minimum"), (does_nothing, *MOVED)),
    **dict.fromkeys(("expand", "concat"), (does_nothing,)),
    "slice": (does_nothing, slice_into_convolution),
    "cast": (does_nothing, into_sum),
    "pairs": (into_sum,),
    **dict.fromkeys(
        ("reshape", "flatten"), (does_nothing, axes_kept, groups_by_reshape, two_reshapes, split_before)
    ),
    "permute": (two_permutations, permutation_undone, does_nothing, permuted_apart, permuted_once),
    **dict.fromkeys(ACTIVATIONS, (function_into_table, into_sum, activation_before_moves)),
    "quantize": (function_into_table, into_sum, rounded_parts, activation_before_moves),
    "complex_mul": (conjugate_into_product,),
    **dict.fromkeys(("batch_norm_given", "binary_cross_entropy"), (in_parts,)),
    "block_linear": (odd_blocks_widened,),
    **dict.fromkeys(GRADIENTS, (through_activation,)),
    **dict.fromkeys(CONVS, (padding_into_convolution,)),
    "linear": (one_hot_product,),
    "matmul": (one_hot_product, matrix_into_weight, matrix_on_columns, multiplied_apart, matrix_of_all),
    "softmax": (softmax_apart,),
    **dict.fromkeys(("attention", "attention_grad"), (mask_of_all,)),
    "where": (does_nothing,),
    **dict.fromkeys(("gather_elements", "scatter_elements"), (slices_for_elements,)),
}


def apply_rules(draft: Draft) -> None:
    """Apply every rule to every node, from the inputs on; to what a rule makes again, until none applies."""
    for name in sorted(draft.nodes, key=draft.place.__getitem__):
        while name in draft.nodes:
            node = draft.nodes[name]
            if not any(rule(draft, node) for rule in (computed_ahead, *RULES.get(node.op, ()))):
                break
