"""The op table of the documentation, from the declarations: ``python -m bslite.ops.table > docs/ops.md``."""

from typing import Any

from bslite import ops
from bslite.ops import Attr, Kind, Op

HEAD = """# Ops

Generated from the declarations in `bslite/ops` by `python -m bslite.ops.table`; do not edit. Every op runs
in the NumPy reference and on the engine for CPUs (dropout is dropped before planning), all but products of
integers and those whose weights are values (`..._given`) on that for GPUs, too. Parameters in brackets are
optional; an attribute without a default is required.

| op | what it computes | inputs | parameters | attributes | torch | ONNX | cases |
|---|---|---|---|---|---|---|---:|
"""


def op_table() -> str:
    """The table as Markdown, by kind, in the order of the declarations."""
    order = list(Kind)
    rows = sorted(ops.REGISTRY.values(), key=lambda op: order.index(op.kind))
    return HEAD + "".join(map(_row, rows))


def _row(op: Op) -> str:
    least, most = op.arity
    inputs = f"{least}" if least == most else f"{least} to {most}"
    params = ", ".join(role if required else f"[{role}]" for role, required in op.params.items())
    doc = " ".join((op.__doc__ or "").strip().split("\n\n")[0].split())
    cells = [
        f"`{op.name}`", doc, inputs, params, "; ".join(map(_attr, op.attrs)),
        op.torch_name, op.onnx_name, str(len(op.cases())),
    ]  # fmt: skip
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |\n"


def _attr(attr: Attr) -> str:
    default: Any = "" if attr.default is ... else f"={attr.default!r}"
    return f"`{attr.name}{default}`" + (f" {attr.doc}" if attr.doc else "")


if __name__ == "__main__":
    print(op_table(), end="")
