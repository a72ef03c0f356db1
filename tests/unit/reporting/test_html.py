"""The page as a file: escaped, self-contained, small, replaced in one step."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from isocompute_sdk import report
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.records import RunSet
from isocompute_sdk.reporting.drawing.html import write
from isocompute_sdk.reporting.page import Page
from tests.processes import ok
from tests.unit.reporting.conftest import HOSTILE


class Document(HTMLParser):
    """Tags with attributes, and the text of every script element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        (self.scripts if self.tags and self.tags[-1][0] == "script" and data.strip() else self.seen).append(data)


@pytest.fixture(scope="module")
def text(page: Page, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(page, tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


def test_hostile_names_stay_text(text: str) -> None:
    document = Document(text)
    assert len(document.scripts) == 2
    assert "img" not in {tag for tag, _ in document.tags}
    assert not any(name.startswith("on") for _, attributes in document.tags for name in attributes)
    shown = HOSTILE.replace("\u202e", r"\u202e")
    assert shown in "".join(document.seen)
    json.loads(document.scripts[0])
    assert all(c.isprintable() or c.isspace() for c in "".join(document.seen))


def test_only_the_scripts_of_the_package_may_run(text: str) -> None:
    document = Document(text)
    (policy,) = [a["content"] or "" for tag, a in document.tags if tag == "meta" and "http-equiv" in a]
    assert "default-src 'none'" in policy
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy))
    found = {
        "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in document.scripts[1:]
    }
    assert found == allowed


def test_the_page_asks_for_nothing_from_outside(text: str) -> None:
    for _tag, attributes in Document(text).tags:
        assert not {"src", "srcset", "data", "action"} & set(attributes)
        assert all((attributes.get(name) or "#").startswith("#") for name in ("href", "xlink:href"))
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#", "", text)


@pytest.mark.slow
def test_sixty_runs_stay_below_one_and_a_half_megabytes(make_runs: Callable[..., RunSet], tmp_path: Path) -> None:
    levels = ((8, 32), (32, 32), (128, 32), (512, 32))
    quantities = ("avg@4", "best@4", "worst@4", "train_reward", "entropy", "kl", "response_length", "gradient_norm")
    frames = [make_runs(levels=levels, metric=name).to_polars() for name in quantities]
    frames = [
        f.with_columns(eval_set=pl.lit("validation" if "@" in n else "train"))
        for f, n in zip(frames, quantities, strict=True)
    ]
    copies = [
        pl.concat(frames).with_columns(
            pl.col("run_id") + f"-seed{seed}", pl.col("value") + seed * 1e-3, seed=pl.lit(seed, dtype=pl.Int64)
        )
        for seed in range(15)
    ]
    runs = RunSet.from_frame(pl.concat(copies))
    assert len(runs.run_ids) == 60
    path = report(runs, tmp_path / "report.html", budget="3M", fit={"metric": "avg@4", "draws": 24})
    assert path.stat().st_size < 1.5e6


def test_the_command_writes_the_page_and_prints_its_path(
    isocompute: Callable[..., subprocess.CompletedProcess[str]], fits: Fits, tmp_path: Path
) -> None:
    fits.save(tmp_path / "fits.json")
    done = ok(isocompute("report", "fits.json", "--budget", "3M", "--spend", "all", "-o", "answer.html", "--json"))
    assert json.loads(done.stdout)["file"] == "answer.html"
    page = re.sub(r"</?span[^>]*>", "", (tmp_path / "answer.html").read_text(encoding="utf-8"))
    assert "isocompute allocate fits.json --budget 3000000 --spend all" in page
    before = (tmp_path / "answer.html").read_bytes()
    for budget in ("2000 usd", "10"):
        refused = isocompute("report", "fits.json", "--budget", budget, "-o", "answer.html")
        assert refused.returncode == 1
        assert refused.stdout == ""
        assert (tmp_path / "answer.html").read_bytes() == before
    assert isocompute("report").returncode == 1
    assert isocompute("report", "missing.json").returncode == 1
