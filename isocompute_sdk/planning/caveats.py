"""What a plan rests on, as coded notes."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.notes import Note
from isocompute_sdk.planning.candidates import Candidate
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.specs import Recipe

OVERFITTING_PROBLEMS = 500
"""Problem-set size at which the paper saw large n overfit (finding 5)."""
STUDIED_PROBLEMS = 5000
"""Smallest full training set of the paper's sweeps."""
LONGEST_EPOCHS = 83
"""Passes over the data in the longest run of the paper's Easy sweep: 4 M rollouts at n = 8 over 6,000 problems."""
LARGEST_STUDIED_BATCH = {"easy": 65_536, "hard": 16_384}
"""B_max of the paper's sweeps."""
LOST_BEYOND = {"surface": (0.047, 0.073), "paper": (0.132, 0.204)}
"""Mean share of the reachable gain that simulated sweeps lost at 3x and 10x of their compute, by method
(docs/allocation.md)."""


def extrapolation(ratio: float, method: str) -> list[Note]:
    """Target compute beyond the data, with what simulated sweeps lost there by this method."""
    if ratio <= 1.0:
        return []
    code = "extrapolation" if ratio <= 3 else f"extrapolation-beyond-{10 if ratio > 10 else 3}x"
    at_3x, at_10x = LOST_BEYOND["surface" if method == "surface" else "paper"]
    measured = {
        "extrapolation": f"Simulated sweeps lost {at_3x:.0%} of the reachable gain on average at 3x by this method.",
        "extrapolation-beyond-3x": f"Simulated sweeps lost {at_3x:.0%} of the reachable gain on average at 3x and "
        f"{at_10x:.0%} at 10x by this method.",
        "extrapolation-beyond-10x": f"Simulated sweeps lost {at_10x:.0%} of the reachable gain on average at 10x by "
        "this method.",
    }[code]
    severity = "info" if ratio <= 3 else "warning"
    return [
        Note(
            code,
            severity,
            f"The plan's compute is {ratio:.3g} times the largest that was seen. {measured} A run or two at a third "
            "of the budget, then a refit, costs less than a wrong n.",
            {"ratio": ratio},
        )
    ]


def another_model(law_model: str | None, model: str | None, method: str) -> Note:
    """Constants fitted to one model, used for another."""
    whose = f"They belong to {law_model}" if law_model else "They belong to other models"
    yours = f", not to {model}" if model else "; this plan names no model"
    tail = "" if method == "prior" else " The best n saturated at 512, 128, 64, 32 and 16 on five published pairs."
    return Note(
        "constants-of-another-model",
        "warning",
        f"{whose}{yours}. The law transfers in shape, not in its constants: fit a pilot of your own.{tail}",
        {"law_model": law_model, "model": model},
    )


def problem_set(candidate: Candidate, n_problems: int | None) -> list[Note]:
    """Small training sets and many passes over them."""
    if n_problems is None:
        return []
    notes: list[Note] = []
    if n_problems < STUDIED_PROBLEMS:
        severity = "warning" if n_problems <= OVERFITTING_PROBLEMS else "info"
        notes.append(
            Note(
                "small-problem-set",
                severity,
                f"{n_problems:,} training problems: the paper's sweeps used 5,000 and 6,000, and with 500 the reward "
                "on held-out problems fell again, first for large n. Watch validation against training reward; the "
                "law holds only before they part.",
                {"n_problems": n_problems},
            )
        )
    epochs = candidate.update_steps * candidate.problems_per_batch / n_problems
    if epochs > LONGEST_EPOCHS:
        notes.append(
            Note(
                "many-epochs",
                "warning",
                f"M * B_p / D = {candidate.update_steps:,} * {candidate.problems_per_batch} / {n_problems:,} = "
                f"{epochs:.0f} passes over the training problems; the paper's longest run made about {LONGEST_EPOCHS}.",
                {"epochs": epochs},
            )
        )
    return notes


def batch(candidate: Candidate, recipe: Recipe, observed_problems: Sequence[int]) -> list[Note]:
    """Batches outside what anybody measured."""
    notes: list[Note] = []
    n, problems = candidate.group_size, candidate.problems_per_batch
    studied = LARGEST_STUDIED_BATCH["easy" if recipe.name == "easy" else "hard"]
    if candidate.rollouts_per_batch > studied:
        notes.append(
            Note(
                "batch-and-group-both-large",
                "warning",
                f"n * B_p = {n} * {problems} = {candidate.rollouts_per_batch:,} rollouts per batch; the paper's sweep "
                f"ended at {studied:,}. Nobody has measured both this large: a guess.",
                {"rollouts_per_batch": candidate.rollouts_per_batch, "studied": studied},
            )
        )
    if problems < recipe.min_problems_per_batch:
        notes.append(
            Note(
                "below-stability-floor",
                "warning",
                f"B_p = {problems} is below the recipe's floor of {recipe.min_problems_per_batch}: training may not "
                "be stable.",
                {"problems_per_batch": problems, "floor": recipe.min_problems_per_batch},
            )
        )
    if observed_problems and problems not in observed_problems:
        notes.append(
            Note(
                "problems-per-batch-not-observed",
                "info",
                f"No run had B_p = {problems} (runs: {', '.join(map(str, observed_problems))}). The paper saw B_p "
                "matter little on Easy (1.9 %) and more on Hard (2.2 % against 3.8 % for n).",
                {"problems_per_batch": problems, "observed": list(observed_problems)},
            )
        )
    return notes


def steps(candidate: Candidate, recipe: Recipe) -> list[Note]:
    """Warm-up that takes a large part of the run."""
    if candidate.update_steps >= 5 * recipe.warmup_steps:
        return []
    return [
        Note(
            "few-update-steps",
            "warning",
            f"{candidate.update_steps} updates with a warm-up of {recipe.warmup_steps}: a large part of the run trains "
            "at a reduced learning rate, which the fits do not know.",
            {"update_steps": candidate.update_steps, "warmup_steps": recipe.warmup_steps},
        )
    ]


def beyond_grid(n: int, largest: int, smallest: int) -> list[Note]:
    """A group size that nobody ran."""
    if smallest <= n <= largest:
        return []
    return [
        Note(
            "beyond-grid",
            "warning",
            f"n = {n} lies outside the group sizes that were run ({smallest} to {largest}); the on-grid answer is "
            "among the alternatives.",
            {"group_size": n, "grid": [smallest, largest]},
        )
    ]


def unused(share: float, ends_by: str, constraints: Sequence[str]) -> list[Note]:
    """Budget that the plan cannot spend."""
    if share <= 0.03:
        return []
    why = {
        "deadline": "the deadline ends the run first",
        "update_steps": "M is fixed" + (f", and {constraints[0]} limits the batch" if constraints else ""),
        "worthwhile": "it is predicted to add almost nothing (rest-not-worthwhile)",
    }.get(ends_by, "one more step would cost more than what is left")
    return [
        Note(
            "unused-budget",
            "info",
            f"{share:.1%} of the budget stays unused: {why}.",
            {"unused_share": share},
        )
    ]


def rest_not_worthwhile(gain: float, tolerance: float, worthwhile: float, given: float, unit: str) -> Note:
    """The curves have flattened: spending more is predicted to buy almost nothing."""
    return Note(
        "rest-not-worthwhile",
        "warning",
        f"{amount_text(worthwhile, unit)} of {amount_text(given, unit)} are planned: the rest is "
        f"predicted to add {gain:.4f} of reward, "
        f"below the tolerance of {tolerance:.4f}. Ask for all to be spent (spend: all) to use everything.",
        {"predicted_gain": gain, "tolerance": tolerance, "worthwhile": worthwhile, "unit": unit},
    )


def near_tie(chosen: int, others: Sequence[int], tolerance: float) -> list[Note]:
    """Group sizes that the predictions cannot tell apart."""
    if not others:
        return []
    return [
        Note(
            "near-tie",
            "info",
            f"n = {chosen} and n = {', '.join(map(str, others))} are predicted within {tolerance:g} of each other: "
            "treat them as equal and take the one that suits your hardware.",
            {"group_sizes": [chosen, *others], "tolerance": tolerance},
        )
    ]


def curves_disagree(chosen: int, better: int, gain: float) -> Note:
    """The law smooths over what the curves say."""
    return Note(
        "law-and-curves-disagree",
        "warning",
        f"The law gives n = {chosen}, but the fitted curves put n = {better} ahead by {gain:.3f} of reward at this "
        "compute. A sigmoid through the frontier is a smoothed answer; look at both curves.",
        {"by_law": chosen, "by_curves": better, "gain": gain},
    )


def compromise(chosen: int, better: int, gain: float) -> Note:
    """The draws of a surface disagree, and the choice lies between."""
    return Note(
        "group-size-compromise",
        "warning",
        f"n = {chosen} is a compromise: n = {better} is predicted {gain:.3f} of reward ahead on average, but these "
        "runs leave open whether small or large n is best, and what lies between loses less where that is so.",
        {"group_size": chosen, "best_on_average": better, "gain": gain},
    )


def batch_limit(n_law: float, problems: int, limit: int) -> list[Note]:
    """The hardware cuts the law off."""
    if 2 * n_law * problems < limit:
        return []
    return [
        Note(
            "plateau-censored-by-batch-limit",
            "warning",
            f"The law's n* = {n_law:.0f} at B_p = {problems} lies within one octave of the batch limit "
            f"B_max / B_p = {limit / problems:g}: the limit may decide instead of the reward.",
            {"law_group_size": n_law, "problems_per_batch": problems, "max_rollouts_per_batch": limit},
        )
    ]


def other_batch(planned: int, fitted: int | None) -> list[Note]:
    """A fixed-batch law used at another batch."""
    if fitted is None or planned == fitted:
        return []
    return [
        Note(
            "fixed-batch-of-another-size",
            "warning",
            f"The law in steps was fitted at B = {fitted:,} rollouts per batch and is used at {planned:,}.",
            {"fitted": fitted, "planned": planned},
        )
    ]


def no_answer(metric: str, reason: str) -> Note:
    """A metric beside the deciding one for which no n can be given."""
    return Note("other-metric-without-plan", "info", f"{metric} is not shown: {reason}.", {"metric": metric})


def metrics_disagree(n: int, others: dict[str, int]) -> list[Note]:
    """Other metrics want another n (coverage against sharpening, training against validation)."""
    far = {metric: m for metric, m in others.items() if max(m / n, n / m) > 2}
    if not far:
        return []
    listed = ", ".join(f"{metric}: {m}" for metric, m in far.items())
    return [
        Note(
            "metrics-disagree",
            "warning",
            f"n = {n} is for the first metric; others differ by more than an octave ({listed}). Decide which one "
            "you are paid for: coverage (best@k) and sharpening (worst@k) want different n.",
            {"group_size": n, "others": far},
        )
    ]
