"""Which cases of ops are run as PTX: those whose kernels together have every pair of compile-time constants.

A variant of a kernel takes its compiler half a second to six. Faults of compiled code come with one constant,
or where two meet, so variants that have all pairs between them find what all combinations would. A constant
that says which function a kernel applies (`FUNCTIONS`) is in no pair: a kernel's loops are the same whatever
they apply, and a function is the same code in every kernel, so each occurs at least once in some kernel.
"""

import heapq
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from bslite.engines.cuda.program import constants_of
from bslite.explore.gpu import GpuMachine
from bslite.ops import Case, Op
from bslite.passes import simplify_for_gpu
from bslite.plan.cuda.build import build_plan
from support.check import single_op_spec

#: Constants that say what is computed of values; all others say of which, where and in which order.
FUNCTIONS = {"function", "activation", "code", "name", "kind", "reduction"}
#: Of those, the ones whose values are the same function in every kernel.
SHARED = {"function", "activation", "code"}

#: A kernel and its constants, each a name and a value as JSON.
Variant = tuple[str, tuple[tuple[str, str], ...]]


def variants(op: Op, case: Case) -> frozenset[Variant]:
    """What a case launches on a large GPU."""
    spec, inputs = single_op_spec(op, case)
    plan = build_plan(simplify_for_gpu(spec), [x.shape for x in inputs], GpuMachine())
    return frozenset(
        (step.kernel, tuple((n, json.dumps(constants_of(v))) for n, v in step.variant.constants().items()))
        for step in plan.steps
    )


def features(variant: Variant) -> set[Any]:
    """What has to occur: the kernel, each function, each other constant of the kernel, each pair of those.
    A stack's constant is its stages: each kind of stage, and each kind after each other.
    """
    kernel, constants = variant
    functions = {
        value if name in SHARED else (kernel, value) for name, value in constants if name in FUNCTIONS
    }
    others = [(name, value) for name, value in constants if name not in (*FUNCTIONS, "stages")]
    stages = dict(constants).get("stages", '""').strip('"').split()
    kinds = [stage.split(":")[0] for stage in stages]
    pairs = [*itertools.combinations(others, 2), *itertools.pairwise(kinds)]
    return {kernel, *functions, *((kernel, c) for c in (*others, *kinds)), *((kernel, *p) for p in pairs)}


def covering(cases: Sequence[Iterable[Variant]], given: Iterable[int] = ()) -> set[int]:
    """Cases, by number, that have all features between them, and those that need no variant besides theirs.

    ``given`` are among them. The next is always the case that adds most, the first of equals.
    """
    adds = [set().union(*map(features, case)) for case in cases]
    missing, taken = set().union(*adds), set()
    queue = [(-len(adds[i]), i) for i in range(len(cases))]
    for i in given:
        missing -= adds[i]
        taken.update(cases[i])
    heapq.heapify(queue)
    while missing:
        _, i = heapq.heappop(queue)
        again = (-len(adds[i] & missing), i)
        if queue and again > queue[0]:
            heapq.heappush(queue, again)
        else:
            missing -= adds[i]
            taken.update(cases[i])
    return {i for i, case in enumerate(cases) if taken.issuperset(case)}
