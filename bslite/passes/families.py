"""Names of ops that engines treat alike, whether they work on signals, images or volumes."""

CONVS = ("conv1d", "conv2d", "conv3d")
INT_CONVS = ("int_conv1d", "int_conv2d", "int_conv3d")
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
#: Whose weights can take a scale of their output.
SCALED = (*CONVS, *TRANSPOSED, "linear")
UPDATES = ("conv1d_grad_weight", "conv2d_grad_weight", "conv3d_grad_weight")
POOLS = tuple(
    f"{pool}{axes}d"
    for axes in (2, 1, 3)
    for pool in ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
)

#: Ops that give the elements of a value another order or shape.
MOVES = ("reshape", "flatten", "permute")
