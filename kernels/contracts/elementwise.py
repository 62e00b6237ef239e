"""The list of elementwise functions of up to three values that the kernels of both targets implement.

Cells are 32 bits: float32, int32, or a bool as int32 0 or 1. Kernels compute integers in 64 bits and flag a
result that does not fit a cell.
"""

#: Functions of two float32, under the names of their ops.
FLOATS = (
    "add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmod", "remainder", "atan2", "logaddexp",
    "prelu",
)  # fmt: skip
#: Functions of two integers; ``floor_div`` and ``remainder`` round towards minus infinity, ``div`` and
#: ``fmod`` towards zero.
INTEGERS = ("add", "sub", "mul", "maximum", "minimum", "floor_div", "remainder", "div", "fmod", "pow")
#: Comparisons of two float32.
ORDERS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
#: Activations whose gradients are functions of two float32, ``g * f'(x)``.
SLOPES = ("relu", "relu6", "silu", "hardswish", "gelu", "gelu_tanh")
#: Changes of dtype that change the cell.
CASTS = ("float_to_int", "int_to_float", "float_to_bool", "int_to_bool")


def on_integers(op: str) -> str:
    """The name of the integer version of an op of `INTEGERS`."""
    return f"int_{op}"


def slope_of(activation: str) -> str:
    """The name of the function for the gradient of one of `SLOPES`."""
    return f"{activation}_grad"


def ordering(op: str, integers: bool) -> str:
    """The name of a comparison's function: for float32, or for any other type of cell."""
    return f"{op}_int" if integers else op


#: Name -> number of values. ``affine`` is ``fma(x, z, w)``, ``where`` picks z or w by x, ``not`` takes bools
#: and ``not_int`` inverts all bits.
FUNCTIONS = {
    "copy": 1,
    "affine": 3,
    **dict.fromkeys(FLOATS, 2),
    **dict.fromkeys(ORDERS, 2),
    **{ordering(name, True): 2 for name in ORDERS},
    **{slope_of(name): 2 for name in SLOPES},
    "and": 2,
    "or": 2,
    "xor": 2,
    "not": 1,
    "not_int": 1,
    "where": 3,
    "isnan": 1,
    "isinf_both": 1,
    "isinf_negative": 1,
    "isinf_positive": 1,
    "isinf_neither": 1,
    **dict.fromkeys(CASTS, 1),
    **{on_integers(name): 2 for name in INTEGERS},
}
