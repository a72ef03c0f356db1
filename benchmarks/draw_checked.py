"""Draw what benchmarks measured, from committed numbers only: pictures of docs/checked.md and of how-to pages.

isocompute backtest --csv benchmarks/data/backtest.csv   # predictions on the corpus, minutes
python benchmarks/draw_checked.py                        # draw from benchmarks/data/ and the tables of docs/
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

import isocompute_sdk as iso
from isocompute_sdk.auditing.backtest import CUTS
from isocompute_sdk.plots import figure_of, style

ROOT = Path(__file__).resolve().parents[1]
FORECASTS = ROOT / "benchmarks" / "data" / "backtest.csv"
SWEEPS = ROOT / "benchmarks" / "data" / "smollm2" / "sweep"
UPDATES = ROOT / "benchmarks" / "data" / "updates_per_batch.csv"
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


def table(page: str, first: str) -> list[list[str]]:
    """Rows of a Markdown table of a page of docs/, named by its first header cell."""
    lines = iter((ROOT / "docs" / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if cells(line)[:1] == [first]:
            next(lines)
            return list(takewhile(bool, map(cells, lines)))
    raise SystemExit(f"no table whose first column is {first!r}")


def cells(line: str) -> list[str]:
    """Cells of one line of a table; none if it is no such line."""
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


def regret() -> dict[str, list[float]]:
    """Share of the reachable gain that each method loses at 1, 3, 10 and 30 times the largest pilot run."""
    rows = table("allocation.md", "simulated sweeps")
    return {name: [float(value) for value in values] for name, *values in rows if not name.startswith("80 %")}


def pilots() -> dict[str, list[float]]:
    """Regret of each way to pilot, at 10 times the pilot's rollouts."""
    return {name: [float(values[1])] for name, *values in table("pilot.md", "design")}


def planned() -> dict[str, list[float]]:
    """Reward of plans made in time and in rollouts, by budget and deadline."""
    rows = table("time.md", "campaigns")
    return {f"{budget}, deadline\n{deadline}": [float(x) for x in rest[:2]] for _, budget, deadline, *rest in rows}


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
def draw_bars(path: Path, groups: dict[str, list[float]], names: Sequence[str], label: str, ours: str) -> None:
    """A group of bars for each entry, each bar under its name; the group or the bars named `ours` stand out."""
    axes = style.canvas(size=(style.WIDTH, 2.9))
    for i, (group, values) in enumerate(groups.items()):
        places = [(0.8 * len(names) + 0.6) * i + 0.8 * j for j in range(len(names))]
        bars = axes.bar(places, values, width=0.7, color=[FIRST if ours in (group, n) else style.MUTED for n in names])
        texts = [f"{name}\n{value:.3f}" for name, value in zip(names, values, strict=True)]
        axes.bar_label(bars, texts, fontsize=8)
        middle, ink = float(np.mean(places)), FIRST if group == ours else style.INK
        axes.text(middle, -0.05, group, ha="center", va="top", color=ink, transform=axes.get_xaxis_transform())
    axes.set(ylabel=label, ylim=(0, 1.2 * max(map(max, groups.values()))), xticks=[])
    style.save_figure(figure_of(axes), path)


@style.styled
def draw_difficulty(path: Path) -> None:
    """Evaluations of SmolLM2 on easy and on hard problems."""
    both = style.panels(2, size=(3.8, 2.9))
    for axes, name in zip(both, ("easy", "hard"), strict=True):
        runs = iso.read(SWEEPS / f"smollm2-{name}.csv").filter(seed=0, group_size=[4, 16, 64])
        axes.set_ylim(0, 0.65)
        iso.plot(runs, "evaluations", ax=axes).set_title(f"{name} problems")
    style.save_figure(figure_of(both[0]), path)


@style.styled
def draw_updates(path: Path) -> None:
    """Rewards of TRL's runs with one, two and four updates per batch, three seeds each, at one learning rate."""
    both = style.panels(2, size=(3.8, 2.9))
    for axes, task in zip(both, ("copy", "sort"), strict=True):
        runs = iso.read(UPDATES).filter(train_data=task, learning_rate=3e-4)
        for updates, colour in zip((4, 2, 1), style.shades(3), strict=True):
            for line in runs.filter(updates_per_batch=updates).series("avg@16"):
                name = f"{updates}" if line.seed == 0 else None
                axes.plot(line.rollouts_T / 1000, line.value_T, color=colour, linewidth=1.3, label=name)
        axes.set(title=f"{task} three letters", xlabel="rollouts (thousands)", ylim=(0, 1.05))
    both[0].set_ylabel("avg@16")
    both[0].legend(title="updates per batch", loc="lower right")
    style.save_figure(figure_of(both[0]), path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", type=Path, default=IMAGES, help="where the pictures go")
    options = parser.parse_args(arguments)
    draw_forecasts(options.folder / "checked_forecasts.svg")
    lost, multiples, times = "share of the gain lost", ("1x", "3x", "10x", "30x"), ("in time", "in rollouts")
    draw_bars(options.folder / "checked_regret.svg", regret(), multiples, lost, "planner")
    draw_bars(options.folder / "pilot_designs.svg", pilots(), ("10x",), lost, "designed")
    draw_bars(options.folder / "time_planning.svg", planned(), times, "share of the gain reached", "in time")
    draw_difficulty(options.folder / "difficulty.svg")
    draw_updates(options.folder / "updates_per_batch.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
