"""Draw docs/images/report.png: the first screen of a page, by the Chromium of this machine.

    python benchmarks/draw_page.py

The picture carries the words of the screen, by which scripts/evidence.py knows when it is stale.
"""

from __future__ import annotations

import html
import io
import re
import shutil
import tempfile
from pathlib import Path

import isocompute_sdk as iso

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
SWEEP = ROOT / "isocompute_sdk/laws/data/sweeps/mul31-easy.csv"
SPEED = iso.Throughput(gpus=1, rollouts_per_second=230, step_overhead_seconds=0.25, usd_per_gpu_hour=2.5)
"""Made up, with its price."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def make(folder: Path) -> Path:
    """The page."""
    known = {"throughput": SPEED, "hardware": iso.Hardware(gpus=1)}
    return iso.report(SWEEP, folder / "page.html", budget="$20", compare="n=16,bp=16", planner=known)


def words(page: Path) -> str:
    """Text of its first screen."""
    found = re.search(r'<section class="answer.*?</section>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, "every page begins with an answer"
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found.group())).split())


def words_of(picture: Path) -> str:
    """Text of the first screen that a picture shows."""
    from PIL import Image

    with Image.open(picture) as image:
        return str(image.info.get("Description", ""))


def main() -> None:
    """Draw."""
    from PIL import Image, PngImagePlugin
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = make(Path(folder))
        program = next(path for name in BROWSERS if (path := shutil.which(name)))
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1100, "height": 900})
        shown.goto(page.as_uri())
        drawn = Image.open(io.BytesIO(shown.screenshot()))
        told = PngImagePlugin.PngInfo()
        told.add_text("Description", words(page))
        drawn.save(PICTURE, pnginfo=told, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
