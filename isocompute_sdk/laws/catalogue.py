"""Published allocation laws by name, constants of one model on one data set, and a prior over all of them.

Source: IsoCompute Playbook (arXiv 2603.12151), figs. 6, 7, 9, 21 and 24. Parameters are as printed in the
figures (two digits), but for the fixed-batch laws: their printed k = 0.01 is over-rounded, and 0.0139 (n) and
0.0111 (B_p) reproduce the drawn curves. `data/README.md` says how the figures were read.

The best n saturates at 512, 128, 64, 32 and 16 on the paper's five model-and-set pairs, so a law copied from one pair
to another can be wrong by a factor of 30. The paper prints midpoint and slope for only two of the five.
"""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from isocompute_sdk.errors import FitError, did_you_mean
from isocompute_sdk.fitting.allocation import AllocationLaw
from isocompute_sdk.fitting.arrays import ComputeAxis, FitStatus
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
    """The laws of one name as `Fits`, with reward curves if the paper draws them."""
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
    """Columns of one digitised figure of the paper, as float64 arrays."""
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


PUBLISHED_PLATEAUS: dict[str, int] = {
    "Qwen2.5-7B-Instruct, Guru-Math Easy": 512,
    "Qwen2.5-7B-Instruct, Guru-Math Hard": 128,
    "Qwen3-4B-Instruct, Guru-Math Easy": 64,
    "Qwen3-4B-Instruct, Guru-Math Hard": 32,
    "Llama-3.1-8B-Instruct, Guru-Math Easy": 16,
}
"""Plateau of n*(C) at B_p = 32 per model and set (paper, sections 4 and 5)."""
MIDPOINTS = (5.54, 5.84, 6.08, 6.13, 6.43)
"""log10 C at half height: the printed values (5.84 twice, 6.08, 6.13) and, assumed for the three other pairs, a factor
of 2 beyond both ends."""
SLOPES = (4.75, 7.23, 8.84)
"""k as printed (figs. 7 and 21), without the fourth value, which is at its bound."""
SMALLEST = 8
"""Smallest n of the published sweeps, 2^b of every law to within 10 %."""


def of_model(model: str, *, hard: bool | None = None) -> Fits:
    """The published laws of a model: its own where the paper prints them, else a prior over its plateaus.

    Args:
        model: hub name or local folder; the prior over all models if nothing is published of it.
        hard: whether the set is a hard one, of which there is a law too; None for an easy one, with a note.
    """
    if _last_part(model) != _last_part(MODEL):
        return hedged_prior(model)
    names = [f"{PREFIX}/guru-math-{kind}" for kind in (("hard", "easy") if hard else ("easy", "hard"))]
    fits = find_published(names[0])
    if hard is not None:
        return fits
    message = (
        f"{model} has published laws for an easy set (the base model solves .3 to .6) and for a hard one (at most "
        f".0625). This plan takes {names[0]}; the other one: --published {names[1]}."
    )
    data = {"law": names[0], "other": names[1]}
    return replace(fits, notes=(*fits.notes, Note("published-set-assumed", "warning", message, data)))


def _last_part(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].lower()


def hedged_prior(model: str | None = None) -> Fits:
    """75 equally likely laws, the default without data: five plateaus x five midpoints x three slopes.

    Args:
        model: take only the plateaus of this model, where some were published.
    """
    own = {
        pair: plateau
        for pair, plateau in PUBLISHED_PLATEAUS.items()
        if model is not None and _last_part(model).startswith(pair.partition(",")[0].lower())
    }
    chosen = own or PUBLISHED_PLATEAUS
    base = float(np.log2(SMALLEST))
    draws = np.array(
        [
            (np.log2(plateau) - base, slope, midpoint, base)
            for plateau, midpoint, slope in itertools.product(chosen.values(), MIDPOINTS, SLOPES)
        ]
    )
    middle = np.median(draws, axis=0)
    height, slope, midpoint, floor = (float(v) for v in middle)
    law = AllocationLaw(height, slope, midpoint, floor, status=FitStatus.PUBLISHED)
    plateaus = sorted(chosen.values())
    note = Note(
        "constants-of-another-model",
        "warning",
        f"Without your own runs, n comes from a prior over the {len(plateaus)} published model-and-set pairs"
        f"{f' of {model}' if own else ''}, with plateaus from "
        f"{plateaus[0]} to {plateaus[-1]}. The shape of the law transfers, its constants do not: fit your "
        "own runs.",
        {"plateaus": plateaus},
    )
    reason = "the prior holds laws of n in compute only"
    return Fits(
        metric="avg@4",
        method="prior",
        laws={"group_size": law},
        unsupported={"group_size_vs_steps": reason, "problems_per_batch_vs_steps": reason},
        notes=(note,),
        law_draws={"group_size": draws},
        model=model if own else None,
        grid=(SMALLEST, plateaus[-1]),
    )
