"""The table from torch operations to builders."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bslite.frontends.torch.values import is_complex
from bslite.registry import Registry

if TYPE_CHECKING:
    import torch

Builder = Callable[..., Any]
OTHERS = ("bslite::", "transformers::")  # libraries beside torch's own whose operations have builders
TABLE: Registry[Builder] = Registry("torch operation")
#: Decorator of a builder: ``conv2d`` names all overloads of an operation, ``conv2d.padding`` one of them.
aten = TABLE.register
COMPLEX: Registry[Builder] = Registry("torch operation on complex numbers")
#: The same for operations that read or make complex numbers, which builders take and give as `Pairs`.
complex_aten = COMPLEX.register


def operation(node: "torch.fx.Node") -> str:
    """``relu`` for ``aten::relu`` and ``aten::relu_``, ``bslite.packed`` for the stand-ins of `packed`,
    ``transformers.grouped_mm_fallback`` for one of that package, "" for any other operation.
    """
    return name_of(node.target)


def name_of(target: Any) -> str:
    """`operation` of what a node calls."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return ""
    if not schema.name.startswith("aten::"):
        return str(schema.name.replace("::", ".")) if schema.name.startswith(OTHERS) else ""
    name: str = schema.name.removeprefix("aten::")
    return name.removesuffix("_") if schema.is_mutable else name


def find(node: "torch.fx.Node") -> Builder | None:
    """The builder for the operation of ``node``, that of its overload first."""
    return known(node.target, COMPLEX if meets_complex(node) else TABLE)


def known(target: Any, table: Registry[Builder] = TABLE) -> Builder | None:
    """The builder for what a node calls, that of its overload first."""
    name = name_of(target)
    return table.get(f"{name}.{getattr(target, '_overloadname', '')}") or table.get(name)


def meets_complex(node: "torch.fx.Node") -> bool:
    """Whether ``node`` reads or makes complex numbers."""
    return any(is_complex(n.meta.get("val")) for n in (node, *node.all_input_nodes))
