"""Sphinx extension of this site: formulas as MathML, and the pages that are generated from the code."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def _mark_examples(app: Sphinx, document: nodes.document) -> None:
    """Have the doctest builder run blocks of code that begin with `>>>`, fenced in Markdown as well."""
    for block in document.findall(nodes.literal_block):
        if block.astext().startswith(">>>"):
            block["testnodetype"], block["groups"], block["options"] = "doctest", ["default"], {}


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("doctree-read", _mark_examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
