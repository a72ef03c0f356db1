"""What the removal of each term of the surface costs, on the corpus and on simulated sweeps.

    python benchmarks/decisions/removals.py --out removals.jsonl --simulated 112
    python benchmarks/decisions/removals.py --out removals.jsonl --sweeps FOLDER

A term whose removal costs nothing should go. Every pilot of `isocompute backtest` is fitted again without the term and
compared with itself, each family with a prior that has not learned from it. What is measured stays in the file given by
--out, one JSON line per term and set of pilots, and is not measured again; after a change of the model start a new one.
`another seed` removes nothing: it shows what the draws alone do. A term takes about 5 s on the corpus and 12 s on 60
simulated sweeps.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from simulated import EVERY_FAMILY, SEED
from simulated import pilots as simulated_pilots

import isocompute_sdk as iso
from isocompute_sdk.auditing.backtest import CUTS, LEVEL, MIN_EVALUATIONS, Pilot, clustered, pilots
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.least_squares import BatchedFit
from isocompute_sdk.fitting.measured_runs import MeasuredRuns
from isocompute_sdk.fitting.surface import data, posterior
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare
from isocompute_sdk.fitting.surface.posterior import fit_surface
from isocompute_sdk.fitting.surface.prior import Prior
from isocompute_sdk.fitting.surface.surface import LEARNED, UNIT_SHAPES, Surface
from isocompute_simulator.scenario import draw_scenario

DRAWS = 200
OTHERS: dict[str, Any] = {"cuts": (1 / 3, 0.5), "seeds": 3, "min_evaluations": 1}
"""Pilots of further sweeps, which are evaluated seldom."""
MEASURED = ("regret", "error", "held", "score")
HERE = "as it stands"
PROBLEM = posterior._Problem  # pyright: ignore[reportPrivateUsage]


def _same(usual: Any) -> Any:
    return usual


@dataclass(frozen=True)
class Term:
    """One removal."""

    name: str
    prior: Callable[[Prior], Prior] = _same
    """What is believed without it, from what is believed with it."""
    patches: Sequence[tuple[ModuleType | type, str, Any]] = ()
    """Module or class, name and value of what stands in its place during the fit."""
    after: Callable[[Surface], Surface] = _same
    interval: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `Surface.interval`."""
    seed: int = 0


def _one_shape_less(name: str) -> tuple[ModuleType, str, Any]:
    return posterior, "UNIT_SHAPES", {other: shape for other, shape in UNIT_SHAPES.items() if other != name}


def _equally(_: object, found: BatchedFit) -> Array:
    return np.zeros(len(found.parameters_NP))


def _unchanged(values: Array, _: float) -> Array:
    return values


def _always(answer: object) -> Callable[..., object]:
    def says(*_: object) -> object:
        return answer

    return says


def _without_kind(number: int) -> Callable[[Prior], Prior]:
    return lambda prior: replace(prior, kinds=prior.kinds[:number] + prior.kinds[number + 1 :])


def _set(**to: float) -> Callable[[Prior], Prior]:
    return lambda prior: replace(prior, **to)


def _mean_0(name: str) -> Callable[[Prior], Prior]:
    return lambda prior: replace(prior, **{name: (0.0, getattr(prior, name)[1])})


def terms() -> Iterator[Term]:
    """Every removal, after the model as it stands."""
    infinite = math.inf
    yield Term(HERE)
    yield Term("another seed", seed=1)
    yield Term("kinds: larger n wins late", _without_kind(0))
    yield Term("kinds: n hardly moves", _without_kind(1))
    for name in UNIT_SHAPES:
        yield Term(f"shapes: {name}", patches=[_one_shape_less(name)])
    yield Term("members weighed by evidence", patches=[(PROBLEM, "log_evidence", _equally)])
    yield Term("second_rise", after=lambda fitted: replace(fitted, second_rise=None))
    yield Term("second_rise: best@k", patches=[(posterior, "best_rises", _always(None))])
    yield Term("second_rise: OPEN", patches=[(posterior, "_seen", _always(0.0))])
    yield Term("declines", after=lambda fitted: replace(fitted, declines=None))
    yield Term("departure", interval={"departure": 0.0})
    yield Term("midpoint_step: mean", _mean_0("midpoint_step"))
    yield Term("slope_step", _set(slope_step_sd=1e-3))
    yield Term("problems_midpoint: mean", _mean_0("problems_midpoint"))
    yield Term("run effects", _set(run_share=0.0, run_midpoint=0.0))
    yield Term("run_share", _set(run_share=0.0))
    yield Term("run_midpoint", _set(run_midpoint=0.0))
    yield Term("NEAR_TOP", patches=[(posterior, "NEAR_TOP", 1e-9)])
    yield Term("OUTLYING", patches=[(posterior, "OUTLYING", infinite)])
    yield Term("NOISE_FACTOR", patches=[(posterior, "NOISE_FACTOR", (1.0, 1.0))])
    yield Term("correlation of the noise", patches=[(data, "CORRELATION_POINTS", infinite)])
    yield Term("OWN_NOISE", patches=[(data, "OWN_NOISE", infinite)])
    yield Term("outlying evaluations", patches=[(data, "without_outliers", _unchanged)])
    yield Term("falls cut off", patches=[(data, "fall_of", _always(None))])


@dataclass(frozen=True)
class Case:
    """Pilots that share one fit."""

    pilots: tuple[Pilot, ...]
    runs: tuple[SurfaceRun, ...]
    group: tuple[str, ...]
    """Of each pilot."""

    @classmethod
    def of(cls, together: Sequence[Pilot]) -> Case:
        """Of pilots with the same runs."""
        first = together[0]
        runs = MeasuredRuns.of(first.runs, first.metric, None, stand_in=True).for_surface("log10_rollouts")
        runs.sort(key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
        groups = tuple(f"{one.sweep.provenance.group}{', same run' if one.same_run else ''}" for one in together)
        return cls(tuple(together), tuple(runs), groups)


def cases(folder: Path | None, simulated: int, seed: int) -> Iterator[tuple[str, list[Case]]]:
    """Name of a set of pilots, and the pilots."""
    options: dict[str, Any] = {"cuts": CUTS, "min_evaluations": MIN_EVALUATIONS}
    yield "corpus", [Case.of([pilot]) for sweep in iso.sweeps() for pilot in pilots(sweep, **options)]
    if folder is not None:
        found = [Case.of([pilot]) for sweep in iso.sweeps(folder) for pilot in pilots(sweep, **OTHERS)]
        yield f"sweeps of {folder.name}", found
    if simulated:
        drawn: list[Case] = []
        for index in range(simulated):
            family = EVERY_FAMILY[index % len(EVERY_FAMILY)]
            scenario = draw_scenario(np.random.default_rng([seed, index]), family)
            drawn.append(Case.of(list(simulated_pilots(scenario, f"{family} {index}"))))
        yield f"{simulated} simulated from {seed}", drawn


def measure(term: Term, case: Case) -> Iterator[tuple[Pilot, str, list[float]]]:
    """Regret, error of the peak, share of intervals that hold and interval score of each pilot."""
    about = case.pilots[0].sweep.provenance
    bounds = about.bounds
    prior = term.prior(Prior.learned(about.family if about.family in LEARNED["families"] else None))
    with ExitStack() as during, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, name, value in term.patches:
            during.enter_context(patch.object(module, name, value))
        prepared = prepare(case.runs, bounds[1] - bounds[0])
        fitted = term.after(fit_surface(prepared, bounds, DRAWS, np.random.default_rng(term.seed), prior))
        for pilot, group in zip(case.pilots, case.group, strict=True):
            size_N = np.array(pilot.sizes, dtype=float)
            true_N = np.array([pilot.truth[n] for n in pilot.sizes])
            mean_N, low_N, high_N = fitted.interval(
                "mean", LEVEL, pilot.target, size_N, pilot.problems_per_batch, **term.interval
            )
            missed_N = np.maximum(np.maximum(low_N - true_N, true_N - high_N), 0.0)
            regret = pilot.best - true_N[int(np.argmax(mean_N))]
            score = float(np.mean(high_N - low_N + 2 / (1 - LEVEL) * missed_N))
            held = float(np.mean(missed_N == 0.0))
            yield pilot, group, [float(regret), float(np.mean(np.abs(mean_N - true_N))), held, score]


@dataclass(frozen=True)
class Outcome:
    """What one removal gave on one set of pilots."""

    set_name: str
    term: str
    seconds: float
    rows: dict[str, tuple[str, str, list[float]]]
    """Name of the pilot and its target -> group, sweep, and `MEASURED`."""


def outcomes(out: Path, sets: Iterator[tuple[str, list[Case]]], every: Sequence[Term]) -> list[Outcome]:
    """All removals, those of the file read from there and the others appended to it."""
    text = out.read_text(encoding="utf-8") if out.exists() else ""
    done = [Outcome(**json.loads(line)) for line in text.splitlines()]
    known = {(one.set_name, one.term) for one in done}
    for set_name, pilots_of in sets:
        for term in every:
            if (set_name, term.name) in known:
                continue
            begun = time.process_time()
            rows = {
                pilot.name: (group, pilot.sweep.name, values)
                for case in pilots_of
                for pilot, group, values in measure(term, case)
            }
            one = Outcome(set_name, term.name, time.process_time() - begun, rows)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(vars(one)) + "\n")
            sys.stderr.write(f"{set_name}: {term.name}, {one.seconds:.0f} s\n")
            done.append(one)
    return done


def table(found: Sequence[Outcome], names: Sequence[str]) -> str:
    """Markdown: per set of pilots and then per group, what each removal changes; errors are clustered by sweep."""
    lines: list[str] = []
    for set_name in dict.fromkeys(one.set_name for one in found):
        of_term = {one.term: one for one in found if one.set_name == set_name}
        here = of_term[HERE]
        groups = list(dict.fromkeys(group for group, *_ in here.rows.values()))
        lines += [f"{set_name}, {len(here.rows)} pilots; with less the term, of a cost positive:", ""]
        lines += ["| without | regret | error | 80 % held | ln score | CPU s | regret by group: " + " / ".join(groups)]
        lines[-1] += " | ln score by group |"
        lines.append("|---" * 8 + "|")
        for name in names:
            if name in of_term:
                lines.append(_line(name, of_term[name], here, groups))
        lines.append("")
    return "\n".join(lines)


def _line(name: str, one: Outcome, here: Outcome, groups: Sequence[str]) -> str:
    before, after = (np.array([o.rows[key][2] for key in here.rows]) for o in (here, one))
    sweep = [here.rows[key][1] for key in here.rows]
    of_group = np.array([here.rows[key][0] for key in here.rows])
    change = after - before
    change[:, 3] = np.log(after[:, 3] / before[:, 3])
    sides = [of_group == group for group in groups]
    if name == HERE:
        mean = before.mean(axis=0)
        cells = [f"{mean[0]:.4f}", f"{mean[1]:.4f}", f"{mean[2]:.2f}", f"{np.log(before[:, 3]).mean():.2f}"]
        by_group = [f"{before[side, 0].mean():.4f}" for side in sides]
        by_score = [f"{np.log(before[side, 3]).mean():.2f}" for side in sides]
    else:
        cells = [_changed(sweep, change[:, k].tolist(), places) for k, places in enumerate((4, 4, 2, 3))]
        by_group = [f"{change[side, 0].mean():+.4f}" for side in sides]
        by_score = [f"{change[side, 3].mean():+.3f}" for side in sides]
    return f"| {name} | {' | '.join(cells)} | {one.seconds:.0f} | {' / '.join(by_group)} | {' / '.join(by_score)} |"


def _changed(sweep: list[str], change: list[float], places: int) -> str:
    mean, error = clustered(sweep, change)
    return f"{mean:+.{places}f}" + ("" if error is None else f" ± {error:.{places}f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True, help="keep what is measured here (JSON lines)")
    parser.add_argument("--sweeps", type=Path, help="folder of further sweeps in the form of the corpus")
    parser.add_argument("--simulated", type=int, default=0, help="number of simulated sweeps")
    parser.add_argument("--seed", type=int, default=SEED, help="of the simulated sweeps")
    parser.add_argument("--only", action="append", help="a term by name; may be repeated")
    given = parser.parse_args(arguments)
    every = [term for term in terms() if given.only is None or term.name in (HERE, *given.only)]
    if given.only is not None and (unknown := set(given.only) - {term.name for term in every}):
        parser.error(f"--only {', '.join(sorted(unknown))}; accepted: {', '.join(term.name for term in terms())}")
    found = outcomes(given.out, cases(given.sweeps, given.simulated, given.seed), every)
    sys.stdout.write(table(found, [term.name for term in every]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
