"""The page in a real browser: no error, nothing cut off, and a slider that shows the numbers of the command line.

Skipped without playwright or without a Chromium or Chrome of the system (`apt-get install chromium`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from isocompute_sdk.planning import Plan
from isocompute_sdk.reporting.drawing.html import write
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Page
from isocompute_sdk.reporting.sections import budgets
from tests.parameters import few

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Shown

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CUT_OFF = """() => [...document.querySelectorAll("body *")]
  .filter(e => !e.closest("svg") && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1)
  .map(e => `${e.tagName}.${e.className}: ${e.scrollWidth} > ${e.clientWidth}`)"""
OVERLAP = """() => [...document.querySelectorAll("main *")]
  .filter(e => !e.closest("svg") && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium or Chrome is installed")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(page: Page, prior_page: Page, fits_file: Path) -> dict[str, Path]:
    folder = fits_file.parent
    return {"fits": write(page, folder / "fits.html"), "prior": write(prior_page, folder / "prior.html")}


def opened(browser: Browser, path: Path, width: int, theme: str, problems: list[str]) -> Shown:
    """A page whose errors, and requests for anything but itself, end up in `problems`."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme).new_page()  # pyright: ignore[reportArgumentType]
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if request.url == path.as_uri() else problems.append(request.url))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize(
    ("name", "width", "theme"),
    few([("fits", 400, "light"), ("prior", 1400, "light"), ("fits", 1400, "dark"), ("prior", 400, "dark")], 2),
)
def test_nothing_is_cut_off_and_nothing_fails(
    browser: Browser, pages: dict[str, Path], name: str, width: int, theme: str
) -> None:
    problems: list[str] = []
    page = opened(browser, pages[name], width, theme, problems)
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(OVERLAP) == []
    assert page.locator(".picture").count() == page.locator(".picture svg").count() > 0
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert problems == []
    page.context.close()


@pytest.mark.parametrize("every", few([22, 1], 1))
def test_positions_of_the_slider_show_what_allocate_says(
    every: int,
    browser: Browser,
    pages: dict[str, Path],
    material: Material,
    fits_file: Path,
    isocompute: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    problems: list[str] = []
    page = opened(browser, pages["fits"], 1400, "light", problems)
    slider, ladder = page.locator("#slider"), material.ladder
    assert int(slider.get_attribute("max") or 0) + 1 == len(ladder) >= 60
    for i, one in list(enumerate(ladder))[::every]:
        slider.evaluate("(e, i) => { e.value = i; e.dispatchEvent(new Event('input', {bubbles: true})); }", i)
        shown = page.locator("[data-value]").all_inner_texts()
        said = isocompute("allocate", fits_file, "--budget", f"{one.budget.amount:.12g}", "--json")
        plan = json.loads(said.stdout)
        assert page.locator("#picked").inner_text() == f"{one.budget.amount:,.0f} rollouts"
        found = dict(zip(budgets.LABELS, shown, strict=True))
        assert found["Group size n"] == str(plan["group_size"])
        assert found["Problems per batch B_p"] == str(plan["problems_per_batch"])
        assert found["Update steps M"] == f"{plan['update_steps']:,}"
        assert found["Rollouts C"] == f"{plan['rollouts']:,}"
        assert found["Expected reward"] == f"{plan['predicted_reward']:.3f}"
        assert found["80 % interval"] == "{:.3f} to {:.3f}".format(*plan["reward_interval"])
        assert shown == [text or "-" for text in budgets.numbers(Plan.from_dict(plan))]
    assert problems == []
    page.context.close()
