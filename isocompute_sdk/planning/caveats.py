"""Notes on a plan: what limits its n, its reward, its hours and its money."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.frontier_laws import unseen_plateaus
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import chance_text, counted, joined, multiple, short
from isocompute_sdk.planning.allocate import Choice, Resolved
from isocompute_sdk.planning.basis import Basis
from isocompute_sdk.planning.inheritance import same_model
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.pricing import Candidate
from isocompute_sdk.specs import Budget, Recipe, Throughput
from isocompute_sdk.tolerances import NEAR

OVERFITTING_PROBLEMS = 500
"""Size of the problem set at which large n overfit in the paper (finding 5)."""
STUDIED_PROBLEMS = 5000
"""Smallest full training set of the paper's sweeps."""
LONGEST_EPOCHS = 83
"""Passes over the data in the longest run of the paper's Easy sweep: 4 M rollouts at n = 8 over 6,000 problems."""
LARGEST_STUDIED_BATCH = {"easy": 65_536, "hard": 16_384}
"""B_max of the paper's sweeps."""
LIKELY_DECLINE = 0.6
"""Probability of a decline before the budget is spent from which a plan says so."""
LIKELY_BEST = 0.1
"""Probability of being the best from which an n is in the race."""
TIMED_SPAN = 2.0
"""Batches this many times outside those that were timed are an extrapolation."""
LENGTHS_SEEN = 1 / 3
"""Share of the plan's compute for which response lengths must be known for its hours to hold."""


def of_plan(basis: Basis, resolved: Resolved, choice: Choice, plan: Plan) -> list[Note]:
    """Notes on the fits, the recipe and the candidate of a plan."""
    fits, pricing, chosen, recipe = resolved.fits, choice.pricing, choice.chosen.candidate, basis.inheritance.recipe
    timed, throughput = pricing.timed, pricing.throughput
    notes = list(of_fits(plan, fits))
    named = None not in (basis.model, fits.model)
    if (fits.method == "published" or named) and not same_model(basis.model, fits.model):
        notes.append(another_model(fits.model, basis.model))
    if fits.curves and fits.model is None and basis.model is not None:
        notes.append(model_of_runs(basis.model))
    notes += basis.inheritance.notes(plan.settings, timed=timed)
    # Of what was assumed beside values of the runs nobody is warned.
    given = {row.name for row in plan.settings if row.source == "given"} - {*plan.assumed}
    notes += [note for note in plan.recipe.notes() if {*note.data} & given or not {*note.data} & {*plan.assumed}]
    if plan.extrapolation is not None:
        notes += extrapolation(plan.extrapolation)
    smallest, largest = fits.group_size_range
    notes += beyond_grid(chosen.group_size, largest, smallest)
    notes += problem_set(chosen, plan.n_problems)
    in_steps = resolved.by_law is not None and resolved.by_law.law == "group_size_vs_steps"
    notes += batch(chosen, recipe, fits, fits.rollouts_per_batch if in_steps else None)
    notes += steps(chosen, recipe)
    notes += evaluation(plan.breakdown, pricing.evaluation_share)
    if throughput is not None:
        notes += speed(throughput, pricing.budget, (plan.rollouts_per_batch, plan.rollouts), basis.throughput)
    for one in plan.alternatives:
        if one.kind == "best-by-curves" and one.expected_loss is not None:
            notes.append(curves_disagree(chosen.group_size, one.group_size, -one.expected_loss))
    return notes


def of_fits(plan: Plan, fits: Fits) -> Iterator[Note]:
    """Notes on the fits; of curves whose plateau no data show only those of an n that may be the best.

    Where n hardly matters, neither does which of them is the best.
    """
    close = (one for one in plan.alternatives if one.kind in ("near-tie", "close"))
    likely = (one for one in plan.alternatives if one.odds and one.odds.probability_best >= LIKELY_BEST)
    in_race = {one.group_size for one in (plan, *close, *likely)}
    for note in fits.notes:
        if plan.odds is not None and "configurations" in note.data and note.code == "plateau-unidentified":
            yield from unseen_plateaus(fits, in_race)
        elif note.code != "best-group-size-at-grid-edge" or plan.verdict.kind != "hardly-matters":
            yield note


def declines(resolved: Resolved, choice: Choice) -> Iterator[Note]:
    """Whether rewards fall at this n before the whole budget is spent."""
    fits, best, onset_D = resolved.fits, choice.best.candidate, choice.onset_D
    if fits.surface is None or fits.surface.declines is None or onset_D is None or not resolved.can_predict:
        return
    largest = fits.largest_compute or 0.0
    chance = float(np.mean(onset_D < resolved.compute(best.rollouts)))
    step, onset = float(np.mean(fits.surface.declines.step_D)), float(np.median(onset_D))
    if chance >= LIKELY_DECLINE:
        went_on = _went_on(fits, best.group_size, onset)
        yield decline(best.group_size, onset, chance, step, fits.group_size_range[1], largest, went_on)


def _went_on(fits: Fits, n: int, onset: float) -> str:
    """How far runs of this n went without a fall, if beyond where rewards are said to begin to fall; else empty."""
    here = {run for run, size in fits.size_by_run.items() if size == n}
    end = max((curve.last_compute for curve in fits.curves.values() if curve.group_size == n), default=0.0)
    if fits.passport is None or not here or here & fits.passport.ends_left_out.keys() or end <= onset:
        return ""
    return f" This comes from runs of other n: none of n = {n} had fallen by C = {short(end)}."


def extrapolation(ratio: float, what: str = "The plan's compute") -> Iterator[Note]:
    """A compute, named by what it is of, lies beyond the data."""
    if ratio <= NEAR:
        return
    yield Note(
        "extrapolation-beyond-3x",
        "warning",
        f"{what} is {multiple(ratio)} times the largest measured: there are no data near it.",
        {"ratio": ratio},
    )


def another_model(law_model: str | None, model: str | None) -> Note:
    """The law was fitted to another model."""
    whose = f"The law's constants belong to {law_model}" if law_model else "The law's constants belong to other models"
    yours = f", not to {model}" if model else "; this plan names no model"
    return Note(
        "constants-of-another-model",
        "warning",
        f"{whose}{yours}. The shape of the law transfers, its constants do not: fit your own runs. The best "
        "n levelled off at 512, 128, 64, 32 and 16 on five published pairs.",
        {"law_model": law_model, "model": model},
    )


def model_of_runs(model: str) -> Note:
    """The runs do not say what they trained."""
    return Note(
        "context-taken-for-granted",
        "info",
        f"The runs do not state their model; {model} is assumed. If they trained another model, fit "
        "runs of this one, or state theirs: --set model=NAME.",
        {"fields": ["model"], "model": model},
    )


def problem_set(candidate: Candidate, n_problems: int | None) -> Iterator[Note]:
    """Small training sets, or many passes over them."""
    if n_problems is None:
        return
    epochs = candidate.update_steps * candidate.problems_per_batch / n_problems
    if n_problems >= STUDIED_PROBLEMS and epochs <= LONGEST_EPOCHS:
        return
    yield Note(
        "small-problem-set",
        "warning" if n_problems <= OVERFITTING_PROBLEMS or epochs > LONGEST_EPOCHS else "info",
        f"{n_problems:,} training problems, {epochs:.0f} passes over them: the paper's sweeps used 5,000 and 6,000, at "
        f"most about {LONGEST_EPOCHS} times, and with 500 the reward on held-out problems fell again, first for large "
        "n. Watch validation against training reward; the law holds only before they diverge.",
        {"n_problems": n_problems, "epochs": epochs},
    )


def batch(candidate: Candidate, recipe: Recipe, fits: Fits, fitted: int | None) -> Iterator[Note]:
    """Batches that no sweep has measured."""
    problems, planned = candidate.problems_per_batch, candidate.rollouts_per_batch
    if problems < recipe.min_problems_per_batch:
        yield Note(
            "below-problems-floor",
            "warning",
            f"B_p = {problems} is below the recipe's floor of {recipe.min_problems_per_batch}: training may be "
            "unstable.",
            {"problems_per_batch": problems, "floor": recipe.min_problems_per_batch},
        )
    yield from batch_not_observed(problems, fits)
    studied = LARGEST_STUDIED_BATCH["easy" if recipe.based_on == "easy" else "hard"] if fitted is None else fitted
    if planned > studied or (fitted is not None and planned != fitted):
        what = "the paper's sweep ended at" if fitted is None else "the law in steps was fitted at"
        text = f"The plan has {planned:,} rollouts per batch; {what} {studied:,}. Its reward is a guess there."
        yield Note("batch-not-observed", "warning", text, {"rollouts_per_batch": planned, "studied": studied})


def batch_not_observed(problems: int, fits: Fits) -> Iterator[Note]:
    """No run had this B_p, or none of some n; a warning if it lies more than an octave outside those that were run."""
    observed = fits.problems_per_batch
    if problems in observed and (elsewhere := [n for n in fits.group_sizes if (n, problems) not in fits.curves]):
        yield Note(
            "batch-not-observed",
            "info",
            f"n = {joined([*map(str, elsewhere)])} {'was' if len(elsewhere) == 1 else 'were'} not run at B_p = "
            f"{problems}: rewards there are predicted from runs of other B_p.",
            {"problems_per_batch": problems, "group_sizes": elsewhere},
        )
    if not observed or problems in observed:
        return
    far = not observed[0] / 2 <= problems <= observed[-1] * 2
    nearest = observed[0] / 2 if problems < observed[0] else observed[-1] * 2
    beyond = f" It is predicted as if B_p were {nearest:g}, an octave outside them." if far else ""
    yield Note(
        "batch-not-observed",
        "warning" if far else "info",
        f"No run had B_p = {problems} (runs: {', '.join(map(str, observed))}).{beyond} The paper saw B_p matter "
        "little on Easy (1.9 %) and more on Hard (2.2 % against 3.8 % for n).",
        {"problems_per_batch": problems, "observed": list(observed)},
    )


def steps(candidate: Candidate, recipe: Recipe) -> Iterator[Note]:
    """The warm-up takes a large part of the run."""
    if candidate.update_steps >= 5 * recipe.warmup_steps:
        return
    yield Note(
        "few-update-steps",
        "warning",
        f"{counted(candidate.update_steps, 'update')} with a warm-up of {recipe.warmup_steps}: a large part of the run "
        "trains at a reduced learning rate; the fits do not account for that.",
        {"update_steps": candidate.update_steps, "warmup_steps": recipe.warmup_steps},
    )


def beyond_grid(n: int, largest: int, smallest: int) -> Iterator[Note]:
    """A group size outside those that were run."""
    if smallest <= n <= largest:
        return
    ran = f"{smallest} to {largest}" if smallest < largest else f"only {largest}"
    yield Note(
        "beyond-grid",
        "warning",
        f"n = {n} lies outside the group sizes that were run ({ran}); the best of those is among the alternatives.",
        {"group_size": n, "grid": [smallest, largest]},
    )


def decline(n: int, onset: float, chance: float, step: float, largest: int, seen: float, went_on: str = "") -> Note:
    """Rewards fall at the chosen n before the budget is spent, so that the rest of it buys nothing there.

    Args:
        n: the chosen group size.
        onset: compute at which rewards begin to fall, the median of its draws.
        chance: probability that this is before the budget is spent.
        step: change of the onset's ln C per octave of n.
        largest: largest n that was run.
        seen: largest compute that was run.
        went_on: what a run of this n says against it, as a sentence.
    """
    ahead = f", beyond all runs (the largest ends at {short(seen)})," if onset > seen else ""
    other = "A larger n" if step > 0 and n < 2 * largest else "A smaller n" if step < 0 else "Another n"
    return Note(
        "decline-within-budget",
        "warning",
        f"At n = {n} rewards begin to fall at about C = {short(onset)}{ahead} and with probability "
        f"{chance_text(chance)} before the budget is spent. After that more compute buys nothing at this n; "
        f"predictions are those of the best checkpoint.{went_on} {other}, more training problems or a KL penalty can "
        "delay this; keep checkpoints and watch training against validation reward.",
        {"group_size": n, "onset": onset, "probability": chance},
    )


def curves_disagree(chosen: int, better: int, gain: float) -> Note:
    """The law and the fitted curves prefer different n."""
    return Note(
        "law-and-curves-disagree",
        "warning",
        f"The law gives n = {chosen}, but the fitted curves put n = {better} ahead by {gain:.3f} of reward at this "
        "compute. The law is a smooth sigmoid through the frontier; compare both.",
        {"by_law": chosen, "by_curves": better, "gain": gain},
    )


def metrics_disagree(n: int, others: Mapping[str, int | str]) -> Iterator[Note]:
    """Other metrics have another best n (coverage against sharpening, training against validation)."""
    far = {metric: m for metric, m in others.items() if not isinstance(m, str) and max(m / n, n / m) > 2}
    if not far:
        return
    listed = ", ".join(f"{metric}: {m}" for metric, m in far.items())
    yield Note(
        "metrics-disagree",
        "warning",
        f"n = {n} is best for the first metric; others differ by more than an octave ({listed}). Decide which "
        "metric matters to you: coverage (best@k) and sharpening (worst@k) have different best n.",
        {"group_size": n, "others": far},
    )


def speed(
    throughput: Throughput,
    budget: Budget,
    size: tuple[int, int],
    stated: Throughput | None,
) -> Iterator[Note]:
    """What the throughput leaves open at this batch and this far into training."""
    batch, rollouts = size
    seen, tokens = throughput.measured, throughput.tokens_per_rollout
    own, grown = set[str]() if stated is None else stated.model_fields_set, throughput.mean_length(rollouts)
    from_runs = "length_growth" not in own if grown > 1 else "tokens_per_rollout" not in own
    matters = budget.unit == "tokens" or (grown > 1 and throughput.rollouts_per_second is not None)
    if tokens is not None and from_runs and matters:
        length = f"{tokens:,.4g} tokens per rollout"
        if grown > 1:
            length += f" at the start and {tokens * grown:,.4g} on average over the plan, as responses grow"
        what, otherwise = "Lengths are", "Give --tokens-per-rollout if the plan's responses will be longer or shorter."
        if "tokens_per_rollout" in own:
            what, otherwise = "The growth of lengths is", "length_growth in --throughput FILE sets another."
        yield Note(
            "speed-from-runs",
            "info",
            f"{what} taken from your runs: {length}. {otherwise}",
            {"tokens_per_rollout": tokens, "mean_tokens_per_rollout": tokens * grown},
        )
    if seen is None:
        return
    unknown_hours = throughput.refusal(batch)
    if unknown_hours is not None:
        yield Note(
            "throughput-extrapolated",
            "info",
            f"Hours are not shown: {unknown_hours}. isocompute run STUDY --probe times three batches.",
            {"rollouts_per_batch": batch, "measured": list(seen.rollouts_per_batch)},
        )
    elif stated is None or stated.rollouts_per_second is None:
        unknown = throughput.gpus is None or seen.gpus_assumed
        fixed = throughput.step_overhead_seconds + throughput.latency_floor_seconds
        flat = "" if seen.follows_lengths else "; steps did not get slower as responses grew"
        on = "their GPUs (the logs do not say how many)" if unknown else counted(throughput.gpus or 0, "GPU")
        yield Note(
            "speed-from-runs",
            "info",
            f"Hours are taken from your runs: {fixed:,.3g} s per update and "
            f"{throughput.rate:,.3g} rollouts/s on {on}{flat}. Give "
            "--rollouts-per-second and --step-overhead-seconds if other machines train the plan.",
            {"rollouts_per_second": throughput.rate, "gpus": throughput.gpus},
        )
    if not budget.timed:
        return
    low, high = seen.rollouts_per_batch[0], seen.rollouts_per_batch[-1]
    one_batch, unseen = not seen.separates_batches, list[str]()
    outside = not one_batch and not low / TIMED_SPAN <= batch <= high * TIMED_SPAN
    growing = seen.follows_lengths and seen.rollouts < LENGTHS_SEEN * rollouts
    if one_batch:
        unseen.append(f"only batches of {low:,} to {high:,} rollouts were timed, and plans stay near those")
    if outside:
        unseen.append(f"batches of {low:,} to {high:,} rollouts were timed, and the plan's has {batch:,}")
    if growing:
        known = f"only up to {seen.rollouts:,.0f} of {rollouts:,} rollouts"
        unseen.append(f"response lengths were measured {known if seen.rollouts else 'nowhere'}, and may grow further")
    if unseen:
        yield Note(
            "throughput-extrapolated",
            "warning" if one_batch or outside else "info",
            f"The plan's hours lie beyond what was timed: {'; '.join(unseen)}. "
            "isocompute run STUDY --probe times three batches.",
            {"rollouts_per_batch": batch, "measured": list(seen.rollouts_per_batch), "lengths": growing},
        )


def evaluation(parts: Mapping[str, Mapping[str, float]], share: float) -> Iterator[Note]:
    """Evaluations cost more than their share."""
    unit = next(unit for unit in ("gpu_hours", "wall_hours", "rollouts") if unit in parts["training"])
    cost = parts["evaluation"][unit] / parts["training"][unit]
    if cost > share * (1 + 1e-9):
        yield Note(
            "evaluation-above-share",
            "warning",
            f"Evaluating the base model and the last step alone costs {cost:.1%} of training, more than the "
            f"{share:.1%} allowed: use fewer problems or samples.",
            {"share": cost, "allowed": share},
        )


def changed_by_hand(
    changed: Mapping[str, tuple[object, object]],
    reward: tuple[float | None, float | None],
    metric: str,
    *,
    recipe: bool,
) -> Note:
    """A person chose other numbers than the planner."""
    listed = ", ".join(f"{name} = {after} (was {before})" for name, (before, after) in changed.items())
    before, after = reward
    predicted = "The fits predict no reward for the change."
    if after is not None:
        predicted = f"Predicted {metric}: {after:.3f}" + (
            "." if before is None else f", before the change {before:.3f}."
        )
    return Note(
        "changed-by-hand",
        "warning",
        f"This plan was changed by hand: {listed}. {predicted} Everything else was recomputed."
        + (" The fits do not account for the changed recipe." if recipe else ""),
        {
            "changed": {name: list(pair) for name, pair in changed.items()},
            "predicted_reward_before": before,
            "predicted_reward": after,
        },
    )
