"""Configuration of the documentation site; build it with `python docs/build.py`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from isocompute_sdk import __version__

project = "isocompute"
author = "The isocompute developers"
copyright = "The isocompute developers, Apache-2.0"
version = release = __version__

# The source folder is the repository, so that a relative link works here and on a forge.
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "tutorials/**",
    "benchmarks/README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [
    "docs/_build",
    "docs/reference/parts",
    ".*",
    "**/data",
    "isocompute_sdk",
    "backends",
    "tests",
    "build",
    "dist",
]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "site_extension",
]
# In place of sphinx.ext.mathjax, which loads a script from elsewhere.
html_math_renderer = "mathml"

# Otherwise --flags in prose become dashes.
smartquotes = False
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
nb_execution_mode = "off"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "model_config"}
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
default_role = "py:obj"
doctest_test_doctest_blocks = "default"
doctest_global_setup = "import isocompute_sdk as iso"

html_theme = "furo"
html_title = f"isocompute {release}"
html_static_path = ["_static"]
html_extra_path = ["_root"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "sidebar_hide_name": False}
highlight_language = "text"
pygments_style = "default"
pygments_dark_style = "monokai"
