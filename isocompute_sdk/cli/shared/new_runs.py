"""How runs of a launch script differ from those behind fits: what a command that reads both has to say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.planning import Plan


def pooled(fits: Fits | None, rates: Iterable[float], train_data: str | None = None) -> list[str]:
    """Names for `--pool` with which new runs are fitted together with those of the fits.

    Args:
        fits: of the runs so far.
        rates: learning rates of the new runs.
        train_data: their training problems; None for those of the runs so far, where a script can read them.
    """
    from isocompute_sdk.records.columns import DEFAULT_EVAL_SET, TRAIN_SETS
    from isocompute_sdk.records.comparable import EVAL_SET, RULE_TOLERANCE, UNSTATED, values_of
    from isocompute_sdk.reporting.wording import unreadable_data

    asked = () if fits is None else fits.options.get("pool", ())
    # What the new runs record is the file, as it is named.
    problems = () if fits is None else values_of(fits.settings, "train_data")
    others = bool(unreadable_data(fits)) if train_data is None else bool({*map(str, problems)} - {train_data})
    differ = ["train_data"] * others + [UNSTATED] * bool(unknown_settings(fits))
    if fits is not None and fits.table is not None:
        sets = [fits.eval_set] if fits.eval_set else fits.table.filter(metric=fits.metric).eval_sets
        differ += [EVAL_SET] * bool({*sets} - {*TRAIN_SETS, DEFAULT_EVAL_SET})
    known = () if fits is None else values_of(fits.settings, "learning_rate")
    if len(known) == 1 and any(not math.isclose(rate, float(known[0]), rel_tol=RULE_TOLERANCE) for rate in rates):
        # Two rates do not show the rule that they follow.
        differ.append("learning_rate")
    return list(dict.fromkeys([*asked, *differ]))


def rewards(plan: Plan) -> list[str]:
    """The option with which a reward other than avg@k is that of both: scripts log avg@k and the training reward."""
    from isocompute_sdk.metrics import UNKNOWN_AVERAGE
    from isocompute_sdk.records.columns import SAYS_ITSELF
    from isocompute_sdk.records.reward_metrics import is_training_reward

    own = plan.metric
    if is_training_reward(own):
        return [f"--metric {quote(own)}"]
    if SAYS_ITSELF.fullmatch(own) or own == UNKNOWN_AVERAGE:
        return []
    return [f"--rename {quote(f'{own}=avg@{plan.evaluation.samples}')}"]


def unknown_settings(fits: Fits | None) -> list[str]:
    """Settings that the scripts record and no run does."""
    from isocompute_sdk.records import CONTEXT_FIELDS
    from isocompute_sdk.records.columns import LENIENT

    runs = () if fits is None or fits.table is None else fits.table.runs()
    # Scripts do not know the number of problems either.
    recorded = [name for name in CONTEXT_FIELDS if name not in (*LENIENT, "n_problems")]
    return [name for name in recorded if runs and all(run.context[name] is None for run in runs)]
