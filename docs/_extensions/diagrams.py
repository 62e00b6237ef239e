"""Diagrams: ```` ```mermaid ```` fences become SVG in the page when the site is built.

mmdr draws them; it is one compiled module, which needs no browser and no network. The page loads no script.
Colours are those of the theme, by `site.css`, so one drawing serves light and dark. Without mmdr (a system
that it has no wheel for) a fence is shown as the text that it is.
"""

import re
from itertools import count
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

SETTINGS = "%%{init: {'theme': 'neutral', 'flowchart': {'htmlLabels': false}}}%%\n"
SMALLEST = 0.55  # of its own size
_numbers = count(1)


def drawn(source: str, name: str) -> str | None:
    """The diagram as an SVG element whose id and styles are ``name``'s own; None if there is no mmdr."""
    try:
        import mmdr
    except ImportError:
        return None
    svg = mmdr.render(SETTINGS + source).svg()
    svg = re.sub(r"^.*?(?=<svg)", "", svg, flags=re.DOTALL)
    width = re.search(r"max-width:\s*([\d.]+)px", svg)
    if width:  # on a narrow page it scrolls in its own place before its words get too small
        svg = svg.replace(width[0], f"{width[0]};min-width:{SMALLEST * float(width[1]):.0f}px", 1)
    return re.sub(r"\bmerman\b", name, svg)


class Mermaid(SphinxDirective):
    """The directive behind the fence."""

    has_content = True

    def run(self) -> list[Any]:
        source = "\n".join(self.content)
        svg = drawn(source, f"diagram-{next(_numbers)}")
        if svg is None:
            return [nodes.literal_block(source, source, language="text")]
        return [nodes.raw("", f'<div class="diagram">{svg}</div>', format="html")]
