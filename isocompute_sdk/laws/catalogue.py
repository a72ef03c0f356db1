"""Published allocation laws by name: constants of one model on one data set, labelled as such.

Source: IsoCompute Playbook (arXiv 2603.12151), figs. 6, 7, 9, 21 and 24. Parameters are as printed in the
figures (two digits), but for the fixed-batch laws: their printed k = 0.01 is over-rounded, and 0.0139 (n) and
0.0111 (B_p) reproduce the drawn curves. `data/README.md` says how the figures were read.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from isocompute_sdk.errors import FitError, did_you_mean
from isocompute_sdk.fitting.allocation import AllocationLaw, ComputeAxis
from isocompute_sdk.fitting.arrays import FitStatus
from isocompute_sdk.fitting.fit_parts import Configuration
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.reward_curve import Points, RewardCurve, fit_curve
from isocompute_sdk.notes import Note

MODEL = "Qwen/Qwen2.5-7B-Instruct"
"""Base model of every law with printed constants."""
PREFIX = "qwen2.5-7b-instruct"


@dataclass(frozen=True)
class Entry:
    """Source of one named set of laws."""

    laws: dict[str, str]
    """Law name -> key in published_laws.json."""
    title: str
    figure: str
    n_problems: int
    """Distinct training problems D of the set."""
    group_sizes: tuple[int, int]
    """Smallest and largest n of the sweep."""
    max_rollouts_per_batch: int
    """B_max of the sweep."""
    compute: ComputeAxis = "log10_rollouts"
    curves: str | None = None
    """Digitised reward curves, a file in data/."""
    points: str | None = None
    """Digitised n*(C) markers, a file in data/."""
    rollouts_per_batch: int | None = None
    """Fixed batch of laws in steps."""


_EASY: dict[str, Any] = {"n_problems": 6000, "group_sizes": (8, 2048), "max_rollouts_per_batch": 65_536}
_HARD: dict[str, Any] = {"n_problems": 5000, "group_sizes": (8, 512), "max_rollouts_per_batch": 16_384}

CATALOGUE: dict[str, Entry] = {
    f"{PREFIX}/guru-math-easy": Entry(
        {"group_size": "q1_easy"},
        "n*(C) at B_p = 32, Easy",
        "figs. 6 and 7",
        curves="sweeps/qwen2.5-7b-easy.csv",
        points="frontier_points_q1_easy.csv",
        **_EASY,
    ),
    f"{PREFIX}/guru-math-easy:joint": Entry({"group_size": "q3_easy"}, "n*(C), all free, Easy", "fig. 21", **_EASY),
    f"{PREFIX}/guru-math-easy:tokens": Entry(
        {"group_size": "tokens_easy"},
        "n*(tokens) at B_p = 32, Easy",
        "fig. 24",
        compute="log10_tokens",
        **_EASY,
    ),
    f"{PREFIX}/guru-math-easy:fixed-batch": Entry(
        {"group_size_vs_steps": "q2_n", "problems_per_batch_vs_steps": "q2_bp"},
        "n*(M) and B_p*(M) at B = 8192, Easy",
        "fig. 9",
        rollouts_per_batch=8192,
        **_EASY,
    ),
    f"{PREFIX}/guru-math-hard": Entry(
        {"group_size": "q1_hard"},
        "n*(C) at B_p = 32, Hard",
        "figs. 6 and 7",
        curves="sweeps/qwen2.5-7b-hard.csv",
        points="frontier_points_q1_hard.csv",
        **_HARD,
    ),
    f"{PREFIX}/guru-math-hard:joint": Entry({"group_size": "q3_hard"}, "n*(C), all free, Hard", "fig. 21", **_HARD),
}


def published_names() -> tuple[str, ...]:
    """Names that `find_published` accepts."""
    return tuple(CATALOGUE)


_CURVES = tuple(entry.curves for entry in CATALOGUE.values() if entry.curves is not None)


@cache
def find_published(name: str) -> Fits:
    """The laws of one name as `Fits`, with reward curves if the paper draws them.

    Raises:
        FitError: an unknown name.
    """
    if name not in CATALOGUE:
        raise FitError(
            f"no published law {name!r}; accepted: {', '.join(CATALOGUE)}",
            f"{did_you_mean(name, list(CATALOGUE))}Use one of these names.",
        )
    entry = CATALOGUE[name]
    x_range = _observed(entry)
    laws = {law: _law(key, entry, x_range) for law, key in entry.laws.items()}
    absent = {"group_size", "group_size_vs_steps", "problems_per_batch_vs_steps"} - set(laws)
    return Fits(
        metric="avg@4",
        method="published",
        curves=_curves(entry),
        laws=laws,
        unsupported={law: f"{name} publishes {', '.join(laws)} only" for law in sorted(absent)},
        notes=(_provenance(name, entry),),
        compute=entry.compute,
        eval_set="validation",
        model=MODEL,
        n_problems=entry.n_problems,
        source=name,
        rollouts_per_batch=entry.rollouts_per_batch,
        max_rollouts_per_batch=entry.max_rollouts_per_batch,
        grid=entry.group_sizes,
    )


def digitised(file: str) -> dict[str, np.ndarray]:
    """Columns of one digitised figure of the paper, as float64 arrays.

    Raises:
        FitError: an unknown file name.
    """
    folder = files("isocompute_sdk") / "laws" / "data"
    have = [*sorted(p.name for p in folder.iterdir() if p.name.endswith(".csv")), *_CURVES]
    if file not in have:
        raise FitError(f"no digitised figure {file!r}; accepted: {', '.join(have)}", "Use one of these names.")
    with (folder / file).open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def measured_easy() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The raw validation rewards of fig. 6 left (Easy, B_p = 32): columns n, C and reward, and their context.

    Left out: dots whose colour was read with confidence 0.5 or less, and dots labelled n = 32 with C > 0.3 M and
    reward < .56, which are probably n = 1024 (both have the same colour).
    """
    table = digitised("scatter_easy_bp32.csv")
    clash = (table["n"] == 32) & (table["C"] > 0.3e6) & (table["reward"] < 0.56)
    keep = (table["colour_confidence"] > 0.5) & ~clash
    context = {"problems_per_batch": 32, "model": MODEL, "train_data": "guru-math-easy", "n_problems": 6000}
    return {name: table[name][keep] for name in ("n", "C", "reward")}, context


@cache
def _constants() -> dict[str, Any]:
    path = files("isocompute_sdk") / "laws" / "data" / "published_laws.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _law(key: str, entry: Entry, x_range: tuple[float, float] | None) -> AllocationLaw:
    in_steps = entry.rollouts_per_batch is not None
    values = _constants()[key]["refit_to_drawn_curve" if in_steps else "printed"]
    at_bound = ("k",) if values["k"] == 50.0 else ()
    return AllocationLaw(
        L=values["L"],
        # The formula in the figure has the sign in the exponent; here a falling law has k < 0.
        k=-values["k"] if key == "q2_bp" else values["k"],
        midpoint=values["x0"],
        b=values["b"],
        x="update_steps" if in_steps else entry.compute,
        status=FitStatus.AT_BOUND if at_bound else FitStatus.PUBLISHED,
        at_bound=at_bound,
        x_range=x_range,
    )


def _observed(entry: Entry) -> tuple[float, float] | None:
    if entry.points is None:
        return None
    compute = np.log10(digitised(entry.points)["C"])
    return float(compute.min()), float(compute.max())


def _curves(entry: Entry) -> dict[Configuration, RewardCurve]:
    if entry.curves is None:
        return {}
    table = digitised(entry.curves)
    found: dict[Configuration, RewardCurve] = {}
    for n in np.unique(table["n"]):
        rows = table["n"] == n
        points = Points(int(n), 32, table["C"][rows], table["avg@4"][rows])
        # This shape fits the drawn curves to 1e-4 of reward.
        found[int(n), 32] = fit_curve(points, "saturating_exponential")
    return found


def _provenance(name: str, entry: Entry) -> Note:
    return Note(
        "published-constants",
        "info",
        f"{name}: {entry.title}; {MODEL} on Guru-Math, arXiv 2603.12151 {entry.figure}. Two digits as printed; "
        "one model, one data set, one seed per configuration.",
        {"model": MODEL, "figure": entry.figure},
    )
