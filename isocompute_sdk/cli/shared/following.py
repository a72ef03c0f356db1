"""A study for `isocompute status` and `isocompute run`: best n, spending by kind, time left, alerts."""

from __future__ import annotations

import json as json_module
import math
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute_sdk.cli.shared.alerts import Watcher, describe_alert
from isocompute_sdk.cli.shared.output import OUTPUT_SCHEMA_VERSION, say, terminal, widest
from isocompute_sdk.errors import FitError, IsoComputeError
from isocompute_sdk.phrases import duration, or_unknown, printable

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.overview import Overview
    from isocompute_sdk.campaigns.study_runs import Cost
    from isocompute_sdk.health.alerts import Alert
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.run_folders.store import RunStatus
    from isocompute_sdk.specs import Budget, Study

PLANNED = ("group_size", "about_equal", "rollouts", "predicted_reward", "metric")
"""What programs are told of the best n so far."""
SECONDS_BETWEEN_FITS = 60.0
"""Least time between two fits of what was measured."""
SHARE_FOR_FITS = 0.1
"""Largest share of the time that is spent on such fits."""
SECONDS_BETWEEN_ALERTS = 30.0
"""Least time between two readings of the logs for alerts."""


def on_file(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """The study of a folder in a few lines, and for programs as {"study": ...}; both empty for another folder.

    Only fits on file are used for the best n.
    """
    from isocompute_sdk.campaigns.campaign import FITS, REFIT
    from isocompute_sdk.campaigns.overview import best_so_far, overview

    found = overview(folder)
    if found is None:
        return [], {}
    fitted = any((folder / name).exists() for name in (FITS, REFIT))
    best = best_so_far(folder, found.study) if fitted else None
    return list(_lines(found, best)), {"study": _as_dict(found, best)}


def follow_study(folder: Path, watcher: Watcher, interval: float, *, json: bool) -> None:
    """Show the runs, the study and the new alerts of a folder until nothing goes on; in place on a terminal.

    Args:
        folder: folder of runs.
        watcher: gives alerts on its logs.
        interval: seconds between two looks.
        json: one JSON document for each look instead.

    Raises:
        SystemExit: with code 1 at the end if the command of an alert failed.
    """
    from rich.live import Live
    from rich.text import Text

    look = _Look(folder, watcher)
    in_place = sys.stdout.isatty() and not json
    live = Live(console=terminal(), auto_refresh=False, vertical_overflow="visible") if in_place else None
    try:
        with live or nullcontext():
            while True:
                look.again()
                if json:
                    print(json_module.dumps(look.document()), flush=True)
                elif live is not None:
                    shown = [*look.lines(), *map(describe_alert, look.alerts), look.page]
                    live.update(Text("\n".join(shown)), refresh=True)
                else:
                    print("\n".join([*look.lines(), *look.news(), ""]), flush=True)
                if not look.goes_on:
                    break
                time.sleep(interval)
    except KeyboardInterrupt:
        print("stopped watching; the runs go on", file=sys.stderr)
    if watcher.undelivered:
        raise SystemExit(1)


class _Look:
    """What is seen of a folder, again and again."""

    def __init__(self, folder: Path, watcher: Watcher) -> None:
        self.folder = folder
        self.alerts: list[Alert] = []
        """Given so far."""
        self.goes_on = True
        self.page = ""
        """Where the page is, or why there is none."""
        self._watcher = watcher
        watcher.give = self.alerts.append
        watcher.waits_in_silence = True
        self._study: Overview | None = None
        self._statuses: list[Any] = []
        self._best: Plan | None = None
        self._next_alerts = self._next_fit = 0.0
        self._mark: object = None
        self._said = (0, "")
        """Alerts and page that were shown."""

    def news(self) -> list[str]:
        """New alerts and the page's place, each once."""
        page = [] if self.page == self._said[1] else [self.page]
        return [*map(describe_alert, self._new_alerts()), *page]

    def _new_alerts(self) -> list[Alert]:
        new = self.alerts[self._said[0] :]
        self._said = len(self.alerts), self.page
        return new

    def lines(self) -> list[str]:
        """Runs and study."""
        runs = [printable(line) for line in described(self._statuses, self.folder)]
        return runs if self._study is None else [*runs, *_lines(self._study, self._best)]

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        study = {} if self._study is None else {"study": _as_dict(self._study, self._best)}
        runs = [status_dict(status) for status in self._statuses]
        alerts = [alert.to_dict() for alert in self._new_alerts()]
        return {"schema_version": OUTPUT_SCHEMA_VERSION, "kind": "status", "runs": runs, "alerts": alerts, **study}

    def again(self) -> None:
        """Look at the runs, now and then at their logs, and fit what was measured since the last fit."""
        from isocompute_sdk.campaigns.overview import overview
        from isocompute_sdk.run_folders import store
        from isocompute_sdk.training import registry

        found = self._study = overview(self.folder)
        if found is not None:
            self._statuses = list(found.statuses)
        else:
            with suppress(IsoComputeError):
                self._statuses = [watch.status() for watch in registry.watches(store.find_runs(self.folder))]
        controlled = found is not None and found.controller is not None
        self.goes_on = controlled or any(one.state == "running" or one.engine for one in self._statuses)
        if found is not None:
            self._refresh_best(found)
        if not self.goes_on or time.monotonic() >= self._next_alerts:
            self._watcher.look_again()
            self._next_alerts = time.monotonic() + SECONDS_BETWEEN_ALERTS

    def _refresh_best(self, found: Overview) -> None:
        """The best n and the page, by a new fit if something was measured since the last one."""
        from isocompute_sdk.campaigns.overview import best_so_far

        mark = [(status.run_id, tuple(status.metrics.items()), status.step) for status in found.statuses]
        now = time.monotonic()
        # The last look always counts: the page must no longer load itself anew.
        if self.goes_on and (mark == self._mark or now < self._next_fit):
            return
        self._mark = mark
        self._best = best_so_far(self.folder, found.study) or self._best
        _, self.page = write_page(self.folder, found.study, int(SECONDS_BETWEEN_FITS) if self.goes_on else None)
        took = time.monotonic() - now
        self._next_fit = now + max(SECONDS_BETWEEN_FITS, took / SHARE_FOR_FITS)


def budget_of_study(runs: Sequence[Path]) -> tuple[Budget, str] | None:
    """The budget to ask about in the folder of a study, and its option; None without a study that has a budget.

    Twice as much once it has its plan; before, the study says its own and the option is empty.
    """
    from isocompute_sdk.campaigns.overview import has_its_plan, study_of
    from isocompute_sdk.reporting.wording import budget_option

    study = study_of(runs[0]) if len(runs) == 1 and runs[0].is_dir() else None
    if study is None or study.budget is None or not has_its_plan(runs[0]):
        return None if study is None or study.budget is None else (study.budget, "")
    more = study.budget.with_amount(2 * study.budget.amount).replace(spent=None)
    return more, budget_option(more)


@contextmanager
def under_way(around: tuple[Study, Path] | None) -> Generator[None]:
    """Where a campaign has measured too little yet, the error says how it goes on."""
    from isocompute_sdk.campaigns.overview import overview, to_go_on
    from isocompute_sdk.reporting.wording import sentence

    try:
        yield
    except FitError as error:
        found = None if around is None else overview(around[1])
        if found is None or found.done:
            raise
        first = f"{sentence(found.first)} " if found.first else ""
        raise error.in_shell(f"{first}To go on: {to_go_on(found.folder)}") from None


def say_first(around: tuple[Study, Path] | None) -> None:
    """Print how slow the runs of the campaign around them are, and what it does before it decides anew, if anything."""
    from isocompute_sdk.campaigns.overview import overview
    from isocompute_sdk.reporting.wording import sentence

    found = None if around is None else overview(around[1])
    if found is not None and found.speed:
        say(sentence(found.speed))
    if found is not None and found.first:
        say(f"{sentence(found.first)} With the runs so far:")


def write_page(
    folder: Path, study: Study, refresh_seconds: int | None = None, *, against: str | None = None
) -> tuple[str | None, str]:
    """Write the page of a study's runs; a page that cannot be made is no failure of the runs.

    Args:
        folder: the folder of the study.
        study: the study.
        refresh_seconds: after what time browsers load it anew, while runs go on.
        against: configuration that is run today, with which it compares the plan.

    Returns:
        The page, and a line that says where it is or why there is none.
    """
    from isocompute_sdk.reporting.report import FILE, report

    if (folder / FILE).is_symlink():
        return None, f"no report: {folder / FILE} is a link, and links are not followed"
    try:
        path = report(folder, folder / FILE, study=study, compare=against, refresh_seconds=refresh_seconds)
    except IsoComputeError as error:
        return None, f"no report: {error.message}"
    return str(path), f"the answer on one page: {path}"


def _lines(found: Overview, best: Plan | None) -> Iterator[str]:
    from isocompute_sdk.campaigns.overview import goes_on_flat, in_the_way, to_go_on
    from isocompute_sdk.planning.pricing import bare

    budget = found.study.budget
    stop = in_the_way(found)
    idle = "no controller is running" + ("" if found.done or stop else f"; to go on: {to_go_on(found.folder)}")
    who = idle if found.controller is None else f"controlled by {found.controller.describe()}"
    parts = (printable(found.stage), found.first or goes_on_flat(found), who)
    yield f"{found.study.name}: {'; '.join(filter(None, parts))}"
    yield from filter(None, (found.speed, "" if stop else found.late))
    if stop is not None:
        yield f"its next start stops: {stop.message}"
        yield f"  {stop.shell_hint}"
    if best is not None:
        equal = f" (about equal: {', '.join(map(str, best.about_equal))})" if best.about_equal else ""
        reward = "" if best.predicted_reward is None else f", predicted {best.metric} {best.predicted_reward:.3f}"
        # Of a finished campaign the measured reward stands above.
        ahead = f"{'' if found.done else reward} at {best.rollouts:,} rollouts"
        yield f"predicted best so far: n = {best.group_size}{equal}{ahead}"
    if spent := by_kind(found):
        yield f"spent: {spent}"
    if budget is not None and found.left is not None:
        part = "" if found.study.designed is not None else " for the plan"
        late = "" if budget.deadline_hours is None else f"; deadline: {budget.deadline_hours:,g} hours after the start"
        yield f"left: {bare(found.left, budget.unit)} of {budget.replace(deadline_hours=None)}{part}{late}"
    if found.seconds_left is not None:
        whole = found.seconds_of_budget
        more = "" if whole is None else f", whole budget at this speed {duration(whole)}"
        yield f"time left: these runs {duration(found.seconds_left)}{more}"


def by_kind(found: Overview) -> str:
    """What pilot, plan and evaluations have cost, and that a budget in rollouts or tokens does not count the last."""
    budget = found.study.budget
    free = " (not counted)" if budget is not None and budget.unit in ("rollouts", "tokens") else ""
    kinds = {kind: amounts(one, budget) for kind, one in found.kinds.items() if one.rollouts or one.gpu_hours}
    return "; ".join(f"{kind} {cost}{free if kind == 'evaluation' else ''}" for kind, cost in kinds.items())


def amounts(spent: Cost, budget: Budget | None) -> str:
    """Rollouts and the budget's unit; hours from three minutes on and money from a cent on, where known, too."""
    from isocompute_sdk.planning.pricing import amount_text

    least = {"rollouts": 0.0, "tokens": math.inf, "gpu_hours": 0.05, "usd": 0.005}
    if budget is not None:
        least[budget.unit] = 0.0
    known = {unit: getattr(spent, unit) for unit in least}
    return " / ".join(amount_text(known[unit], unit) for unit in least if (known[unit] or -1.0) >= least[unit])


def _as_dict(found: Overview, best: Plan | None) -> dict[str, Any]:
    return {
        "name": found.study.name,
        "stage": found.stage,
        "controller": None if found.controller is None else vars(found.controller),
        "best": None if best is None else {name: getattr(best, name) for name in PLANNED},
        "spent": {kind: vars(one) for kind, one in found.kinds.items()},
        "left": found.left,
        "unit": None if found.study.budget is None else found.study.budget.unit,
        "seconds_left": found.seconds_left,
        "seconds_of_budget": found.seconds_of_budget,
    }


def say_spending(folders: Sequence[Path]) -> None:
    """Print what runs have used for training and beside it for evaluation; nothing without journals of both."""
    from isocompute_sdk.timing.spending import spending

    used = spending(folders)
    if used.evaluation_rollouts:
        say(f"used: {used.summary()}")


def final_steps(folder: Path) -> dict[str, int]:
    """M that each run of a designed pilot is to have if no look ends it."""
    from isocompute_sdk.campaigns.pilot_rounds import read_decisions

    taken = read_decisions(folder)
    return {run.run_id: run.final_steps for run in taken[-1].runs} if taken else {}


def described(statuses: Sequence[RunStatus], folder: Path | None = None) -> list[str]:
    """One line for each run, which names its study where there are several.

    Args:
        statuses: how far the runs are.
        folder: of their campaign, whose decisions say which of them only pause.
    """
    final = dict[Path, int]()
    with suppress(IsoComputeError):  # Damaged decisions are named with the study.
        for place in {one.folder.parent for one in statuses} | ({folder} if folder else set[Path]()):
            steps = final_steps(place)
            final |= {one.folder: steps[one.run_id] for one in statuses if one.run_id in steps}
    if len({one.folder.parent for one in statuses}) > 1:
        statuses = [replace(one, run_id=f"{one.folder.parent.name}/{one.run_id}") for one in statuses]
    width = widest(one.run_id for one in statuses)
    return [_describe(one, width, final.get(one.folder) or one.update_steps) for one in statuses]


def _describe(status: RunStatus, width: int, steps: int | None) -> str:
    """One run on one line: n, B_p, steps done, rollouts, the last evaluation (or training reward), state."""
    length = "?" if steps is None else f"{steps:,}"
    share = f" ({status.step / steps:4.0%})" if steps else ""
    value = f"{status.headline[0]} {status.headline[1]:.3f}" if status.headline else ""
    state = f"{status.state}: {status.message}" if status.message else status.state
    if status.state == "finished":
        # Its message says that a look ended it.
        state = "paused" if steps is not None and status.step < steps else status.message or state
    if status.engine and status.job:
        state += f", {status.engine} {status.job}"
    if status.devices:
        state += f" on GPU {', '.join(status.devices)}"
    best = status.best
    if best is not None:
        noise = " (the largest of several noisy values, so above the true one)"
        if best.reported is not None:
            noise = f" ({best.reported:.3f} on samples not used to choose it)"
        state += f"; highest evaluation {best.metric} {best.reward:.3f}{noise} at step {best.step:,}: {best.checkpoint}"
    n, problems = or_unknown(status.group_size), or_unknown(status.problems_per_batch)
    return (
        f"{status.run_id:<{width}} n = {n:<5} B_p = {problems:<5} "
        f"step {status.step:>7,} of {length:>7}{share}  C = {status.rollouts:<11,} {value:<18} {state}"
    )


def status_dict(status: RunStatus) -> dict[str, Any]:
    """One run for programs."""
    found = {**vars(status), "folder": str(status.folder), "metrics": dict(status.metrics)}
    return {**found, "best": None if status.best is None else vars(status.best)}
