"""Numbers and names as a report writes them: rewards and their differences with three decimals."""

from __future__ import annotations

import glob
import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote

from isocompute_sdk.auditing import Audit
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import chance_text, counted
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.pricing import amount_text as amount
from isocompute_sdk.planning.verdict import better_reward
from isocompute_sdk.records.comparable import values_of
from isocompute_sdk.specs import Budget, Study
from isocompute_sdk.training.checks import PLACEHOLDER, in_home, is_other_format

OF_CURVES = ("plateau-unidentified", "law-at-bound", "backtest-missed", "few-group-sizes", "one-seed-per-cell")
"""Codes of notes about fitted curves, which mean nothing where no run rises."""
STEP_LAWS = ("group_size_vs_steps", "problems_per_batch_vs_steps")
"""Laws in update steps, which only plans with a fixed M and B use."""
PROBLEMS = "PROBLEMS.jsonl"
"""What stands for a file of problems in a command."""
TYPED = (
    *("problems_per_batch", "update_steps", "rollouts_per_batch", "n_problems", "min_update_steps"),
    *("mode", "spend", "beyond_grid", "evaluation_share"),
)
"""Arguments of `Planner.allocate` that are options of the same name."""
DATA = (".jsonl", ".ndjson", ".json")
"""Suffixes of files of problems that scripts read."""
chance = chance_text


def about_unused_law(note: Note, fits: Fits | None) -> bool:
    """Whether a note is about a law in steps, or about any law of a surface, which answers without one."""
    law = note.data.get("law")
    return law in STEP_LAWS or (law is not None and fits is not None and fits.surface is not None)


def budget_option(budget: Budget) -> str:
    """`--budget` with the amount, quoted for a shell, and `--spent` for each part of it that is spent."""
    spent = (f"--spent {purpose}={amount:.12g}" for purpose, amount in (budget.spent or {}).items())
    return " ".join([f"--budget {_typed(budget, budget.amount)}", *spent])


def _typed(budget: Budget, amount: float) -> str:
    """An amount in the unit of a budget as it is typed, quoted for a shell."""
    unit = {"rollouts": "", "gpu_hours": " GPU-hours"}.get(budget.unit, f" {budget.unit}")
    gpus = "" if budget.gpus is None else f" on {counted(budget.gpus, 'GPU')}"
    return quote(f"{amount:.12g}{unit}{gpus}")


def bounds_words(measured: Fits | Audit | None) -> list[str]:
    """`--bounds` of the metric that was fitted; none for the usual 0 to 1."""
    if measured is None or measured.bounds == (0.0, 1.0):
        return []
    return ["--bounds {:.10g} {:.10g}".format(*measured.bounds)]


def fitted_words(measured: Fits | Audit) -> list[str]:
    """`--bounds`, `--eval-set` and `--pool` of what was fitted, as it was asked for."""
    pool = measured.options.get("pool", ()) if isinstance(measured, Fits) else ()
    return [*bounds_words(measured), *set_words(measured), *(f"--pool {name}" for name in pool)]


def set_words(measured: Fits | Audit) -> list[str]:
    """`--eval-set` of what was fitted, where one was chosen."""
    return [] if measured.eval_set is None else [f"--eval-set {quote(measured.eval_set)}"]


def speed_options(plan: Plan) -> list[str]:
    """Options that say how fast and dear the plan's GPUs are, and its deadline; none where its budget needs none.

    What the logs of the runs say is left to them: they know more of it than options can say.
    """
    speed, budget, hours = plan.throughput, plan.budget, plan.budget.deadline_hours
    if speed is None or (budget.unit == "rollouts" and hours is None):
        return []
    logged = plan.logged_speed
    given: dict[str, float | None] = {}
    if "tokens_per_rollout" not in logged:
        given["tokens_per_rollout"] = speed.tokens_per_rollout
    if budget.timed and "rollouts_per_second" not in logged:
        given["rollouts_per_second"] = speed.rollouts_per_second
        given["step_overhead_seconds"] = speed.step_overhead_seconds + speed.latency_floor_seconds
    if budget.timed:
        given |= {"usd_per_gpu_hour": speed.usd_per_gpu_hour, "gpus": speed.gpus}
    options = [f"--{name.replace('_', '-')} {value:.9g}" for name, value in given.items() if value is not None]
    return [*options, *([] if hours is None else [f"--deadline {hours:.6g}h"])]


def limit_options(plan: Plan) -> list[str]:
    """Options with which the plan was asked for, besides its budget, speed and recipe."""
    limit, of = plan.hardware.max_rollouts_per_batch, plan.asked_evaluation
    words = [] if limit is None else [f"--max-rollouts-per-batch {limit}"]
    words += [] if of is None or of.n_problems is None else [f"--evaluation {of.n_problems}x{of.samples}"]
    asked = {name: value for name, value in plan.options.items() if name in TYPED}
    words += [f"--{name.replace('_', '-')} {value}" for name, value in asked.items()]
    return [*words, *["--any-group-size"] * (plan.options.get("powers_of_two") is False)]


def instead(plan: Plan, *, campaign: bool) -> tuple[str, str] | None:
    """What to ask instead of a plan that is not worth its cost, in words and as an option; None of other plans.

    Args:
        plan: the plan.
        campaign: whether it is asked for a campaign, which is not asked what a reward costs.
    """
    if plan.approval is not None and plan.approval.smaller is not None:
        budget = plan.budget.with_amount(plan.approval.smaller)
        return f"what {amount(budget.amount, budget.unit)} would buy", budget_option(budget)
    if campaign or {"rollouts_per_batch", "update_steps"} <= {*plan.binding}:
        # With M and the batch fixed no other budget buys more.
        return None
    if (not plan.gains_nothing and plan.last_half is None) or (better := better_reward(plan)) is None:
        return None
    unit = "" if plan.budget.unit == "rollouts" else f" --reward-unit {plan.budget.unit}"
    unit += "" if plan.budget.gpus is None else f" --gpus {plan.budget.gpus}"
    return "what a higher reward would cost", f"--for-reward {round(better, 3):g}{unit}"


def runs_behind(fits: Fits | None) -> str:
    """What the runs behind fits were read from, as typed, or a word to fill in."""
    return (fits.read_from if fits is not None else "") or "RUNS"


def load_plan(file: Path) -> Plan:
    """A saved plan that names the runs behind it as they are named from this folder; errors as of `Plan.load`."""
    plan = Plan.load(file)
    return plan if plan.fits is None else replace(plan, fits=named_from_here(plan.fits, file.parent))


def named_from_here(fits: Fits, folder: Path) -> Fits:
    """Fits that name their runs as they are named from this folder; those were typed here or where the fits lie."""

    def here(word: str) -> str:
        there = str(folder / word)
        typed_here = Path(word).exists() or glob.glob(word) or not (Path(there).exists() or glob.glob(there))
        return word if typed_here else os.path.relpath(there)

    return replace(fits, read_from=shlex.join(map(here, shlex.split(fits.read_from))))


def whether_to_go_on(plan: Plan) -> str:
    """What the command of `going_on` answers, in words."""
    assert plan.gain is not None, "of a plan with a run to go on with"
    return f"whether to continue {plan.gain.run_to_go_on}"


def going_on(plan: Plan) -> str:
    """The command that asks whether a run so far should go on instead of the plan; empty where that gains no more."""
    gain, small = plan.gain, plan.tolerances.small
    if gain is None or gain.run_to_go_on is None or gain.going_on < small:
        return ""
    approval = plan.approval
    if approval is not None and approval.smaller is not None:
        return ""
    refused = approval is not None and approval.kind == "do-not" and not plan.runs_first
    if not (plan.gains_nothing or refused) and gain.further < plan.tolerances.equal:
        return ""
    limit = plan.hardware.max_rollouts_per_batch
    cap = "" if limit is None else f" --max-rollouts-per-batch {limit}"
    # Rounded up, so that it pays for as many updates; twelve digits are typed.
    part = 1 if plan.budget.unit in ("rollouts", "tokens") else 10_000
    cost = math.ceil(plan.cost * part * (1 - 1e-12)) / part
    words = [f"isocompute forecast RUNS --run {quote(gain.run_to_go_on)} --remaining {_typed(plan.budget, cost)}{cap}"]
    words += speed_options(plan)
    return " ".join(words)


def reward_test(plan: Plan, study: Study | None) -> str:
    """The command for a plan of runs whose rewards do not rise: with the files of their study, or words to fill in.

    Empty where the study's problems are not here, as those of simulated runs.
    """
    if study is not None and not Path(study.data.train).exists():
        return ""
    if study is not None:
        data, reward = study.data.train, study.data.reward
        keys = {"--prompt-key": study.data.prompt_key, "--answer-key": study.data.answer_key}
    else:
        known = () if plan.fits is None or unreadable_data(plan.fits) else values_of(plan.fits.settings, "train_data")
        data, reward, keys = str(known[0]) if len(known) == 1 else PROBLEMS, "REWARD.py", {}
    words = [quote(data), f"--label {quote(plan.model or PLACEHOLDER)}", f"--reward {quote(reward)}"]
    return " ".join(["isocompute problems", *words, *(f"{key} {quote(name)}" for key, name in keys.items() if name)])


def unreadable_data(fits: Fits | None) -> list[str]:
    """Training data of the runs that no script can read: only a name, or a file that a launch refuses."""
    names = [] if fits is None else [str(value) for value in values_of(fits.settings, "train_data")]
    is_file = {name: Path(name).suffix in DATA or Path(name).exists() for name in names}
    return [name for name in names if not is_file[name] or is_other_format(name) or in_home(name)]


def costs(found: Mapping[str, float], unit: str) -> str:
    """Money and hours where they are known, else in the unit of the budget."""
    units = [one for one in ("usd", "gpu_hours") if one in found] or [unit]
    return ", ".join(amount(found[unit], unit) for unit in units)


def reward(value: float | None) -> str:
    """A reward."""
    return "not predicted" if value is None else f"{value:.3f}"


def interval(ends: tuple[float, float] | None) -> str:
    """An interval of rewards."""
    return "" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def difference(one: float, other: float) -> str:
    """The difference of two rewards as shown, so that the three numbers agree on a screen."""
    return signed(round(one, 3) - round(other, 3))


def signed(value: float) -> str:
    """A difference of rewards."""
    # Adding zero turns a rounded -0.0 into 0.0.
    return f"{round(value, 3) + 0.0:+.3f}"


def ends(interval: tuple[float, float]) -> str:
    """An interval of differences."""
    return f"{signed(interval[0])} to {signed(interval[1])}"


def configuration(plan: Plan) -> str:
    """What to run, in words: of a plan that is approved in part, that part."""
    steps = f"M = {plan.update_steps:,} update steps"
    if plan.approved_steps < plan.update_steps:
        steps = f"up to step {plan.approved_steps:,} of M = {plan.update_steps:,}"
    problems = counted(plan.problems_per_batch, "problem")
    return f"n = {plan.group_size} rollouts for each of B_p = {problems} per batch, {steps}"


def sentence(text: str) -> str:
    """A sentence that begins with a capital, unless with the symbol n, and ends."""
    text = text if text.startswith("n ") else text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
