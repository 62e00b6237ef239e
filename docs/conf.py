"""The site's settings. `sphinx-build -W -n -b html docs build/docs` makes it, without the network."""

import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from _extensions import commands, diagrams, names, outside

project = "bslite"
author = "the authors of bslite"
version = release = installed("bslite")
html_show_copyright = False

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
nitpicky = True
smartquotes = False  # "--" is an option's, not a dash

# A word in `backticks` in a docstring is a name; `_extensions.names` says which names are links.
default_role = "py:obj"
toc_object_entries_show_parents = "hide"
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "pydata_sphinx_theme"
html_title = "bslite"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": f"bslite {version}"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 5,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "navigation_depth": 3,
    "show_prev_next": True,
    "footer_start": [],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}


def setup(app: Any) -> None:
    """Connect what `_extensions` has."""
    app.connect(
        "source-read", outside.reader({"reference/cli": commands.text, "decisions/README": outside.decisions})
    )
    app.connect("missing-reference", names.resolve)
    app.add_directive("mermaid", diagrams.Mermaid)
