"""Notes on how OpenRLHF differs from a recipe.

Every field of a recipe is applied exactly (flags.py), refused here, or covered here by a note on the difference. A test
changes each field and checks that one of the three happens.
"""

from __future__ import annotations

import math

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training import checks

LARGEST_STD_EPSILON = 2e-5
"""Above it an advantage of 0/1 rewards could change by a thousandth within the paper's grid (n <= 2,048)."""


def recipe_notes(run: RunSpec) -> tuple[Note, ...]:
    """Notes on everything that OpenRLHF cannot do or does differently."""
    recipe = run.recipe
    notes: list[Note] = [*_unsupported(recipe), *_standard_deviation(run), *_penalties(recipe)]
    notes += [*checks.sampled_temperature(recipe), *checks.importance_weights(recipe)]
    notes += [*checks.unused_fields(recipe), *checks.warmup_from_zero(run, run.update_steps * recipe.updates_per_batch)]
    return tuple(notes)


def _unsupported(recipe: Recipe) -> list[Note]:
    notes: list[Note] = []
    if recipe.algorithm == "cispo":
        message = (
            "OpenRLHF has no CISPO loss. With one update per batch the policy ratio is 1 and the gradient of CISPO "
            "equals that of GRPO's clipped loss: set recipe.algorithm to grpo."
        )
        notes.append(Note("cispo-unsupported", "refuse", message))
    filters = checks.zero_variance_filters(recipe)
    if filters:
        message = (
            f"{', '.join(filters)}: OpenRLHF cannot leave groups out of a loss term. Its dynamic filtering replaces "
            "them by groups of new problems instead, which uses up problems and changes the number of update steps. "
            "Set them to false: a group of equal rewards has no policy gradient anyway."
        )
        notes.append(Note("zero-variance-filter-unsupported", "refuse", message, {"fields": filters}))
    return notes


def _standard_deviation(run: RunSpec) -> list[Note]:
    """std_epsilon: OpenRLHF divides groups by std + 1e-9 and batches by max(std, 1e-4), whatever is asked for."""
    recipe, epsilon = run.recipe, run.recipe.std_epsilon
    data = {"std_epsilon": epsilon}
    if not recipe.normalize_advantage:
        notes = checks.std_epsilon_unused(recipe)
        if recipe.algorithm == "ppo":
            message = "normalize_advantage is off: OpenRLHF still subtracts the batch mean from PPO's advantages."
            notes.append(Note("advantages-still-centred", "info", message))
        return notes
    # The smallest non-zero deviation of n rewards of 0 and 1 is that of a lone success: 1 / sqrt(n).
    change = epsilon * math.sqrt(run.group_size)
    if epsilon > LARGEST_STD_EPSILON or change > 1e-3:
        message = (
            f"std_epsilon = {epsilon:g}: OpenRLHF's own value is 1e-9 and cannot be set; with {run.group_size} "
            f"rollouts per problem an advantage would differ by up to {change:.1e} of its size. Accepted: at most "
            f"{LARGEST_STD_EPSILON:g} and at most {1e-3 / math.sqrt(run.group_size):.1e} for this group size."
        )
        return [Note("std-epsilon-fixed", "refuse", message, data)]
    if recipe.algorithm == "ppo":
        message = (
            f"std_epsilon = {epsilon:g}: OpenRLHF divides PPO's advantages by their deviation over the batch, at least "
            "1e-4, without adding anything; the difference is below a thousandth for deviations above "
            f"{1e3 * epsilon:.0e}."
        )
        return [Note("std-epsilon-fixed", "info", message, data)]
    message = (
        f"std_epsilon = {epsilon:g}: OpenRLHF always uses 1e-9, with the unbiased deviation. With rewards of 0 and 1 "
        f"an advantage changes by at most {change:.1e} of its size. With other rewards a group of equal rewards, such "
        "as 0.1, can get advantages up to 1 from rounding alone; use rewards that are multiples of 1/2, 1/4 ..."
    )
    return [Note("std-epsilon-fixed", "info", message, {**data, "largest_relative_change": change})]


def _penalties(recipe: Recipe) -> list[Note]:
    notes = [*checks.kl_off(recipe), *checks.kl_without_gradient(recipe)]
    if recipe.kl_coef > 0 and recipe.kl_in == "reward" and recipe.algorithm != "ppo":
        message = (
            "kl_in = reward: OpenRLHF subtracts the KL per token after the rewards of a group were normalised, so its "
            "weight is in units of advantages, not of rewards."
        )
        notes.append(Note("kl-after-normalisation", "warning", message))
    if recipe.loss_aggregation != "token-mean":
        message = (
            f"loss_aggregation = {recipe.loss_aggregation} applies to the policy loss; OpenRLHF averages the KL, "
            "entropy and value terms over tokens in any case."
        )
        severity = "warning" if recipe.kl_coef > 0 or recipe.entropy_coef > 0 or recipe.algorithm == "ppo" else "info"
        notes.append(Note("penalties-stay-token-mean", severity, message))
    return notes
