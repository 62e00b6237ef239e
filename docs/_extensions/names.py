"""Names in docstrings and signatures: a public one is a link, another stays as it is."""

from typing import Any

import bslite


def public() -> dict[str, str]:
    """Every way to write the name of a public object -> its name in the reference."""
    found: dict[str, str] = {}
    for name in bslite.__all__:
        value = getattr(bslite, name)
        for alias in (name, f"bslite.{name}", f"{getattr(value, '__module__', '')}.{name}"):
            found[alias] = f"bslite.{name}"
    return found


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """A reference that Sphinx did not find.

    Words in `backticks` (``py:obj``) and types in signatures (``py:class``) name much that is not public and
    has no page. It is shown without a link; a public name that has none is a warning.
    """
    if node.get("refdomain") != "py" or node.get("reftype") not in ("obj", "class", "exc"):
        return None
    name = _public.get(node["reftarget"])
    if name is None:
        return content
    domain = env.domains["py"]
    if name not in domain.objects:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)


_public = public()
