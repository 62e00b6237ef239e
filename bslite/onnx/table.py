"""The documentation's table of ONNX operators: ``python -m bslite.onnx.table > docs/onnx.md``."""

from collections.abc import Iterable

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.claims import CLAIMED, NOT_COMPARABLE
from bslite.frontends.onnx.control import HANDLED
from bslite.frontends.onnx.file import LEAST_OPSET
from bslite.frontends.onnx.ops import TABLE
from bslite.onnx.control import CONTROL
from bslite.onnx.host import FIRST, HOST

HEAD = """# ONNX operators

Generated from the builders in `bslite/frontends/onnx/ops` by `python -m bslite.onnx.table`; do not
edit. `from_onnx` reads opset LEAST and later, of ONNX's own domain, and functions that a model brings along.
Opsets and tests are those of onnx VERSION.

"Opsets" are those at which the operator changed and that bslite knows; a model's opset is read by the last of
them before it. "Tests" marks operators of which every node test in ONNX's own suite passes, within float32,
int64, int32, bool, uint8 and int8 (`tests/frontends/test_onnx_conformance.py`). For `from_onnx`, sizes, axes,
weights and the like must not depend on the model's inputs; those that are inputs can be built in:
`from_onnx(model, constants={"axes": array})`. `bslite.compile` and `bslite.onnx.backend` take any: they cut
the graph where a value is needed, and run "between pieces" what is marked so. Values of other types (float64,
int16, uint64, texts and so on) are computed in NumPy, by the functions of `bslite/onnx/host`.

Operators that ONNX defines by others (marked "as a function") are written out where there is no builder, or
where the builder does not know the form; what bslite does not have is listed by `from_onnx`, all at once.

| operator | opsets | tests | how |
|---|---|---|---|
"""

#: What is said of the operators of other sets than ONNX's own.
FOREIGN = """
Of onnxruntime's own operator set `com.microsoft`: {}.

Those of integers that ONNX lacks are computed as what they stand for: to float32, the operation, and back.
DynamicQuantizeLSTM rounds its inputs and states to 8 bits as onnxruntime does on one thread.

Of the operator set of classical models `ai.onnx.ml`: {}.

Linear ones and scalers of float32 run in the engine, ensembles of trees in a compiled kernel between pieces,
the others in NumPy between pieces.
"""


def onnx_table() -> str:
    """The table as Markdown, by name."""
    onnx = load_onnx()
    versions: dict[str, list[int]] = {}
    functions = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            versions.setdefault(schema.name, []).append(schema.since_version)
            if schema.has_function or schema.has_context_dependent_function:
                functions.add(schema.name)
    rows = []
    everything = {*TABLE, *CONTROL, *HOST, *(functions & set(CLAIMED))}
    for name in sorted(n for n in everything if ":" not in n):
        known = sorted(v for v in versions.get(name, []))
        last = max([v for v in known if v <= LEAST_OPSET], default=0)
        since = [str(v) for v in known if v >= last]
        ways = [HANDLED[name]] if name in HANDLED else []
        ways += ["builder"] if name in TABLE else []
        ways += ["as a function"] if name in functions and name not in CONTROL else []
        ways += ["between pieces"] if name in FIRST or name in CONTROL else []
        how = ", or ".join(ways or ["between pieces"])
        rows.append(f"| {name} | {', '.join(since)} | {'all' if name in CLAIMED else ''} | {how} |\n")
    notes = [f"* `{test}`: {why}\n" for test, why in NOT_COMPARABLE.items()]
    return (
        HEAD.replace("LEAST", str(LEAST_OPSET)).replace("VERSION", onnx.__version__)
        + "".join(rows)
        + "\nTests of these operators that are left out:\n\n"
        + "".join(notes)
        + FOREIGN.format(*(_names(everything, domain) for domain in ("com.microsoft", "ai.onnx.ml")))
    )


def _names(operators: Iterable[str], domain: str) -> str:
    """Those of an operator set."""
    return ", ".join(sorted(n.partition(":")[2] for n in operators if n.startswith(f"{domain}:")))


if __name__ == "__main__":
    print(onnx_table(), end="")
