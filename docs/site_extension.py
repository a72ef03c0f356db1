"""Sphinx extension of this site: formulas as MathML, and the pages that are generated from the code."""

from __future__ import annotations

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import generate
from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.writers.html5 import HTML5Translator

NAPOLEON: Any = Config(napoleon_use_rtype=False)


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def _google(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Sections of Google style. Not sphinx.ext.napoleon itself: to it, `a: b` under an attribute is type and text."""
    if what not in ("attribute", "data"):
        kind: Any = "method" if what == "property" else what
        lines[:] = GoogleDocstring(lines, NAPOLEON, app, kind, name, found, options).lines()


def _no_fields(app: Sphinx, what: str, name: str, found: Any, *_: Any) -> tuple[str, str] | None:
    """No signature for classes of fields: each field stands below with its type."""
    return ("", "") if what == "class" and (is_dataclass(found) or hasattr(found, "model_fields")) else None


def _unlink_metrics(app: Sphinx, document: nodes.document) -> None:
    """Keep `avg@4` in a docstring from being read as an address of mail."""
    for link in list(document.findall(nodes.reference)):
        if link.get("refuri", "").startswith("mailto:"):
            link.replace_self(nodes.Text(link.astext()))


def _note_anchors(app: Sphinx, document: nodes.document) -> None:
    """An anchor for every code in the tables of the page on notes: notes.html#near-tie."""
    if app.env.docname == "docs/notes":
        for table in document.findall(nodes.table):
            table["classes"].append("stacked")
        for row in document.findall(nodes.row):
            row["ids"] += [code.astext() for code in row[0].findall(nodes.literal)]


def _long_dashes(app: Sphinx, document: nodes.document) -> None:
    """Lists of arguments: a dash between name and text. Smart quotes would also change flags."""
    for text in list(document.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def _mark_examples(app: Sphinx, document: nodes.document) -> None:
    """Have the doctest builder run blocks of code that begin with `>>>`, fenced in Markdown as well."""
    for block in document.findall(nodes.literal_block):
        if block.astext().startswith(">>>"):
            block["testnodetype"], block["groups"], block["options"] = "doctest", ["default"], {}


def _generate(app: Sphinx) -> None:
    generate.write(Path(app.srcdir) / "docs" / "reference")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _google)
    app.connect("autodoc-process-signature", _no_fields)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("builder-inited", _generate)
    app.connect("doctree-read", _unlink_metrics)
    app.connect("doctree-read", _note_anchors)
    app.connect("doctree-read", _long_dashes)
    app.connect("doctree-read", _mark_examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
