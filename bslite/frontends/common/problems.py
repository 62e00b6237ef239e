"""The list of everything that prevents a conversion."""

from collections.abc import Mapping, Sequence


def report(model: str, found: Mapping[str, Sequence[str]]) -> str:
    """One line for each thing in ``found`` (what -> where), with the number of uses and the places."""
    lines = [f"model {model!r} needs what bslite does not have:"]
    for what, places in sorted(found.items(), key=lambda item: -len(item[1])):
        names = list(dict.fromkeys(places))
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        lines.append(f"  {len(places)} x {what}; at {', '.join(names[:8])}{more}")
    return "\n".join(lines)
