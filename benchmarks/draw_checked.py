"""Draw what benchmarks measured: the pictures of docs/checked.md, from committed numbers only.

isocompute backtest --csv benchmarks/data/backtest.csv   # predictions on the corpus, minutes
python benchmarks/draw_checked.py                        # draw from benchmarks/data/ and the tables of docs/
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isocompute_sdk.auditing.backtest import CUTS
from isocompute_sdk.plots import figure_of, style

ROOT = Path(__file__).resolve().parents[1]
FORECASTS = ROOT / "benchmarks" / "data" / "backtest.csv"
ALLOCATION = ROOT / "docs" / "allocation.md"
IMAGES = ROOT / "docs" / "images"
FIGURES = "figures of language models"
FIRST, SECOND = style.PLAN, style.INK
"""Colours of language models and of small tasks; none of them means an n."""


def forecasts() -> list[dict[str, Any]]:
    """One prediction of the planner a row: group, cut, true and predicted reward, and whether the interval holds."""
    with FORECASTS.open(encoding="utf-8") as handle:
        rows = [row for row in csv.DictReader(handle) if row["method"] == "planner"]
    numbers = [{name: float(row[name]) for name in ("cut", "true", "predicted", "low", "high")} for row in rows]
    return [
        {"group": row["group"], **one, "held": one["low"] <= one["true"] <= one["high"]}
        for row, one in zip(rows, numbers, strict=True)
    ]


def table(text: str, first: str) -> dict[str, dict[str, str]]:
    """A Markdown table by its first header cell; rows by their first cell, cells by header."""
    lines = iter(text.splitlines())
    for line in lines:
        header = cells(line)
        if header and header[0] == first:
            next(lines)
            rows: dict[str, dict[str, str]] = {}
            for row in lines:
                found = cells(row)
                if not found:
                    return rows
                rows[found[0]] = dict(zip(header[1:], found[1:], strict=True))
            return rows
    raise SystemExit(f"no table whose first column is {first!r}")


def cells(line: str) -> list[str]:
    """Cells of one line of a table; none if it is no such line."""
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


def simulated() -> dict[str, list[float]]:
    """Numbers at 1, 3, 10 and 30 times the largest pilot run, by row of the table on simulated sweeps."""
    rows = table(ALLOCATION.read_text(encoding="utf-8"), "simulated sweeps")
    return {name: [float(cell) for cell in row.values()] for name, row in rows.items()}


def regret() -> dict[str, list[float]]:
    """Share of the reachable gain that each method loses at 1, 3, 10 and 30 times the largest pilot run."""
    return {name: values for name, values in simulated().items() if not name.startswith("80 %")}


@style.styled
def draw_forecasts(path: Path) -> None:
    """Measured against predicted reward on the corpus."""
    both = style.panels(2, size=(3.8, 3.9))
    for axes, title, cuts in zip(
        both, ("2 and 3 times the pilot", "8 times the pilot"), (CUTS[1:], CUTS[:1]), strict=True
    ):
        for place, (label, colour) in enumerate((("language models", FIRST), ("small tasks", SECOND))):
            rows = [
                row
                for row in forecasts()
                if row["cut"] in cuts and (row["group"] == FIGURES) == (label == "language models")
            ]
            for held in (True, False):
                part = [row for row in rows if row["held"] is held]
                axes.scatter(
                    [row["predicted"] for row in part],
                    [row["true"] for row in part],
                    s=18,
                    color=colour if held else "none",
                    edgecolor=colour,
                    linewidth=0.8,
                    alpha=0.8,
                )
            share = sum(row["held"] for row in rows)
            axes.text(
                0.0,
                -0.24 - 0.08 * place,
                f"{label}: {share} of {len(rows)} intervals hold",
                transform=axes.transAxes,
                color=colour,
                va="top",
            )
        axes.plot([0, 1], [0, 1], color=style.MUTED, lw=0.8)
        axes.set(title=title, xlabel="predicted best reward", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    both[0].set_ylabel("measured")
    style.save_figure(figure_of(both[0]), path)


@style.styled
def draw_regret(path: Path) -> None:
    """Regret of the methods."""
    axes = style.canvas(size=(style.WIDTH, 2.9))
    methods = regret()
    for i, (name, values) in enumerate(methods.items()):
        places = [4 * i + 0.8 * j for j in range(len(values))]
        bars = axes.bar(places, values, width=0.7, color=FIRST if i == 0 else style.MUTED)
        axes.bar_label(
            bars,
            [f"{factor}\n{value:.3f}" for factor, value in zip(("1x", "3x", "10x", "30x"), values, strict=True)],
            fontsize=8,
        )
        axes.text(float(np.mean(places)), -0.012, name, ha="center", va="top", color=FIRST if i == 0 else style.INK)
    axes.set(ylabel="share of the gain lost", ylim=(0, 1.2 * max(map(max, methods.values()))), xticks=[])
    style.save_figure(figure_of(axes), path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", type=Path, default=IMAGES, help="where the pictures go")
    options = parser.parse_args(arguments)
    draw_forecasts(options.folder / "checked_forecasts.svg")
    draw_regret(options.folder / "checked_regret.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
