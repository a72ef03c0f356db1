"""Build the site into docs/_build/html and check it.

    python docs/build.py

Warnings of Sphinx are errors, every `>>>` example runs, every link inside the site must lead to a page and an anchor
that exist, and pages must load nothing from elsewhere. Links to other sites are checked for their form only: whether
they answer is not checked, because the build uses no network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).resolve().parent
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
"""Elements whose address a browser loads by itself, with the attribute."""
LOADED_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}
"""Relations of `link` that a browser loads; the others are only named."""


def build(folder: Path) -> list[str]:
    """Build html and run the doctests; what failed, in words."""
    common = ["-q", "-W", "--keep-going", "-c", str(HERE), "-d", str(folder / "doctrees"), str(HERE.parent)]
    failed: list[str] = []
    for builder in ("html", "doctest"):
        # Pages kept from an earlier build would hide their warnings; the doctests then take those just read.
        fresh = ["-E"] if builder == "html" else []
        if sphinx(["-b", builder, *fresh, *common, str(folder / builder)]) != 0:
            report = folder / "doctest" / "output.txt"
            failed.append(
                report.read_text(encoding="utf-8") if builder == "doctest" else "html: see the warnings above"
            )
    return failed


@dataclass
class Page(HTMLParser):
    """Anchors of one page, what it links to and what it loads."""

    anchors: set[str] = field(default_factory=set[str])
    links: list[str] = field(default_factory=list[str])
    loads: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser."""
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given and tag != "meta"}
        address = given.get(LOADED.get(tag, ""))
        if address is not None and (tag != "link" or LOADED_RELATIONS & set(given.get("rel", "").split())):
            self.loads.append(address)
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


def read_page(file: Path) -> Page:
    """Parse one HTML file."""
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def broken(html: Path) -> Iterator[str]:
    """Links of the built site that lead nowhere, and what its pages would load from elsewhere."""
    pages = {file.resolve(): read_page(file) for file in html.rglob("*.html")}
    for file, page in pages.items():
        place = file.relative_to(html.resolve())
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if address in page.loads:
                    yield f"{place}: loads {address}"
                elif parts.scheme not in ("http", "https") or "." not in parts.netloc:
                    yield f"{place}: {address} is no address"
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file():
                yield f"{place}: {address} leads to no file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{place}: {address} leads to no anchor"
    for sheet in html.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        if "url(http" in text or "url(//" in text or "@import" in text:
            yield f"{sheet.relative_to(html)}: loads a file from elsewhere"


def main() -> int:
    """The command; 0 if the site is built and nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE / "_build", help="folder for the site (docs/_build)")
    folder: Path = parser.parse_args().output
    wrong = build(folder)
    wrong += sorted(set(broken(folder / "html")))
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{folder / 'html' / 'index.html'}: {'NOT ' if wrong else ''}in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
