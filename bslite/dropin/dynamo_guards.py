"""Drops a guard of Dynamo that costs a recompilation and does not concern bslite.

To follow a convolution, Dynamo asks which of torch's libraries would run it. One library runs small images
only if the batch is at least 16. The answer becomes a guard, so that a batch on the other side of 16
recompiles the graph, whatever the backend. A graph that bslite runs is right on both sides.
"""

import torch

QUESTION = ("fake_impls.py", "conv")  # the file and function that ask


def forget_choice_of_library() -> None:
    """Drop such guards from the graph that is being compiled.

    This uses private parts of torch; where they differ from what is expected, the guards stay.
    """
    try:
        from torch.utils._sympy.numbers import int_oo
        from torch.utils._sympy.value_ranges import ValueRanges

        context = torch._guards.TracingContext.try_get()
        if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
            return
        shapes = context.fake_mode.shape_env
        asked = [guard for guard in shapes.guards if _asked_by_convolution(guard)]
        others = [guard for guard in shapes.guards if not _asked_by_convolution(guard)]
        symbols = {s for guard in asked for s in guard.expr.free_symbols}
        symbols -= {s for guard in others for s in guard.expr.free_symbols}
        shapes.guards[:] = [g for g in shapes.guards if g not in asked or not g.expr.free_symbols <= symbols]
        for symbol in symbols:
            shapes.var_to_range[symbol] = ValueRanges(2, int_oo)  # zero and one are always for themselves
    except (AttributeError, ImportError, TypeError):
        return


def _asked_by_convolution(guard: object) -> bool:
    place = guard.sloc.framework_loc  # type: ignore[attr-defined]
    file, function = QUESTION
    return place is not None and str(place.filename).endswith(file) and place.name == function
