"""Replay of digitised real curves: n decided on a part of them, judged by what the rest then shows.

Each panel is one digitised figure of the IsoCompute Playbook (arXiv 2603.12151), one curve per n. The drawn curves are
smooth: they count as the truth, and evaluation noise of realistic size is added (standard deviation .011 on Easy, .004
on Hard). A surface is fitted to everything up to 30, 50 or 100 % of the panel's largest compute; the plan is made for
that largest compute, and the drawn n nearest to the planned one counts.

    python benchmarks/decisions/panels.py --seeds 20

Regret: reward of the best checkpoint up to the target, by the best n that has a point in the part that was shown, less
that of the chosen n. Error: predicted less true reward of the best checkpoint at the chosen n. An n whose curve ends
early keeps its best checkpoint from there on.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
from allocation import plain_table
from left_out import Tried, chosen_by_charge, held_by_factor, records

import isocompute_sdk as iso
from isocompute_sdk import RunSet
from isocompute_sdk.fitting.surface.answers.odds import PER_SQUARED_OCTAVE

SHARES = (0.3, 0.5, 1.0)
"""Parts of a panel's largest compute that are shown before the decision."""
EASY_SD, HARD_SD = 0.011, 0.004
"""Standard deviation of one evaluation in the figures (README of the panels)."""
PROBLEMS_PER_BATCH = 32
SEED = 4_101
EVALUATIONS = 60
"""Evaluations per curve: the digitised points are thinned to about that many."""
SMOOTH = 3
"""Points over which a digitised curve is averaged before its maximum is taken."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Panel:
    """One digitised figure."""

    name: str
    curves: dict[int, tuple[Array, Array]]
    """Rollouts and reward per n, by increasing rollouts."""
    noise: float
    trained: dict[int, tuple[Array, Array]] = field(default_factory=dict[int, tuple[Array, Array]])
    """Rollouts and training reward per n, where drawn."""

    @property
    def largest(self) -> float:
        """Largest compute of any curve."""
        return max(float(rollouts[-1]) for rollouts, _ in self.curves.values())

    def best(self, n: int, rollouts: float) -> float:
        """Reward of the best checkpoint of a drawn n up to a compute."""
        at, reward = self.curves[n]
        smooth = np.convolve(np.pad(reward, SMOOTH // 2, mode="edge"), np.full(SMOOTH, 1 / SMOOTH), mode="valid")
        return float(smooth[at <= rollouts].max())

    def runs(self, share: float, rng: np.random.Generator) -> RunSet:
        """A noisy reading of everything up to a share of the largest compute."""
        columns: dict[str, list[float]] = {"n": [], "C": [], "avg@4": []}
        for n, (at, reward) in self.curves.items():
            step = max(1, round(len(at) / EVALUATIONS))
            shown = (at <= share * self.largest)[::step]
            noisy = reward[::step] + rng.normal(0.0, self.noise, len(reward[::step]))
            columns["n"] += [n] * int(shown.sum())
            columns["C"] += at[::step][shown].tolist()
            columns["avg@4"] += np.clip(noisy[shown], 0.0, 1.0).tolist()
        return RunSet.from_columns(columns, problems_per_batch=PROBLEMS_PER_BATCH, model="digitised")


def panels() -> tuple[Panel, ...]:
    """The panels that ship."""
    data = files("isocompute_sdk") / "laws" / "data"
    qwen = data / "panels" / "qwen3_4b_easy.csv"
    return (
        Panel("Easy", _read(data / "reward_curves_easy_bp32.csv", "n", "C"), EASY_SD),
        Panel("Hard", _read(data / "reward_curves_hard_bp32.csv", "n", "C"), HARD_SD),
        Panel(
            "Qwen3 Easy", _read(qwen, "group_size", "rollouts"), EASY_SD, _read(qwen, "group_size", "rollouts", "train")
        ),
        Panel(
            "D = 6,000",
            _read(data / "panels" / "qwen2.5_7b_easy_6000_problems.csv", "group_size", "rollouts"),
            EASY_SD,
        ),
    )


def _read(path: object, size: str, compute: str, split: str = "validation") -> dict[int, tuple[Array, Array]]:
    with Path(str(path)).open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row.get("split", split) == split]
    found: dict[int, tuple[Array, Array]] = {}
    for n in sorted({int(row[size]) for row in rows}):
        points = sorted((float(row[compute]), float(row["reward"])) for row in rows if int(row[size]) == n)
        at, reward = np.array(points).T
        found[n] = (at, reward)
    return found


@dataclass(frozen=True)
class Row:
    """One decision."""

    panel: str
    share: float
    seed: int
    chosen: int
    """Drawn n nearest to the planned one."""
    planned: int
    regret: float
    error: float
    """Predicted less true reward of the best checkpoint at the chosen n."""
    held: bool
    """Whether the 80 % interval holds the true one."""
    verdict: str
    tried: Tried
    """The same with other constants."""
    stopped_short: float
    """Reward still to be had, with any drawn n, by who stops where the default plan does."""


def replay(panel: Panel, share: float, seed: int) -> Row:
    """Decide on a part of a panel."""
    rng = np.random.default_rng([SEED, seed, round(100 * share), len(panel.name)])
    runs = panel.runs(share, rng)
    target = panel.largest
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = iso.fit(runs)
        planner = iso.Planner(fits, recipe=iso.Recipe.preset("hard" if panel.name == "Hard" else "easy"))
        whole = planner.allocate(target, problems_per_batch=PROBLEMS_PER_BATCH, spend="all")
        plan = planner.allocate(target, problems_per_batch=PROBLEMS_PER_BATCH)
    levels = [n for n in panel.curves if n in fits.group_sizes]
    chosen = min(levels, key=lambda n: abs(np.log2(n / whole.group_size)))
    best = {n: panel.best(n, target) for n in panel.curves}
    found = fits.predict(target, chosen, PROBLEMS_PER_BATCH)
    true = best[chosen]
    reached = min(panel.curves, key=lambda n: abs(np.log2(n / plan.group_size)))
    return Row(
        panel.name,
        share,
        seed,
        chosen,
        whole.group_size,
        max(best[n] for n in levels) - true,
        float(found.mean) - true,
        float(found.low) <= true <= float(found.high),
        plan.verdict.kind,
        _tried(panel.name, share, fits, target, levels, best),
        max(best.values()) - panel.best(reached, max(plan.rollouts, float(panel.curves[reached][0][0]))),
    )


def _tried(name: str, share: float, fits: iso.Fits, target: float, levels: list[int], best: dict[int, float]) -> Tried:
    by_charge = chosen_by_charge(fits, target, levels, PROBLEMS_PER_BATCH)
    regret = {charge: max(best[n] for n in levels) - best[n] for charge, n in by_charge.items()}
    n = by_charge[PER_SQUARED_OCTAVE]
    return Tried(name, share, regret, held_by_factor(fits, target, n, PROBLEMS_PER_BATCH, best[n]))


def run(seeds: int, only: Sequence[str] = ()) -> Iterator[Row]:
    """Every panel, share and seed."""
    for panel in panels():
        if only and panel.name not in only:
            continue
        for share in SHARES:
            yield from (replay(panel, share, seed) for seed in range(seeds))


def table(rows: Sequence[Row]) -> str:
    """A Markdown table: a line per panel and share, then all together."""
    lines = ["| panel | shown | regret | worst | error | bias | 80 % holds | chosen n | verdicts | lost by stopping |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    keys = [(name, share) for name in dict.fromkeys(r.panel for r in rows) for share in SHARES]
    for name, share in keys:
        lines.append(_line(name, f"{share:.0%}", [r for r in rows if r.panel == name and r.share == share]))
    lines.append(_line("all", "", rows))
    return "\n".join(lines)


def _line(name: str, shown: str, rows: Sequence[Row]) -> str:
    regret, error = np.array([r.regret for r in rows]), np.array([r.error for r in rows])
    chosen = ", ".join(f"{n}: {count}" for n, count in sorted(Counter(r.chosen for r in rows).items()))
    said = ", ".join(f"{kind} {count}" for kind, count in Counter(r.verdict for r in rows).most_common())
    stopped = [r.stopped_short for r in rows if r.verdict == "stop-spending"]
    cells = [
        name,
        shown,
        f"{regret.mean():.4f}",
        f"{regret.max():.3f}",
        f"{np.abs(error).mean():.4f}",
        f"{error.mean():+.4f}",
        f"{np.mean([r.held for r in rows]):.2f}",
        chosen if name != "all" else "",
        said,
        f"{np.max(stopped):.3f}" if stopped else "",
    ]
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the replay from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=(), help="names of panels")
    parser.add_argument("--json", type=Path, help="write every row here")
    options = parser.parse_args(arguments)
    rows = list(run(options.seeds, options.only))
    sys.stdout.write(table(rows) + "\n")
    if len({row.panel for row in rows}) > 1:
        sys.stdout.write("\n" + plain_table(records([row.tried for row in rows])) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
