"""What else was close, and what stopped the plan from doing better."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.planning.candidates import Candidate, Rejection, ends_batch
from isocompute_sdk.planning.choice import LawPreference, RewardPreference
from isocompute_sdk.planning.plan import Alternative
from isocompute_sdk.planning.question import TIE, Question


def alternatives(question: Question, chosen: Candidate, candidates: Sequence[Candidate]) -> tuple[Alternative, ...]:
    """Near-ties, what the curves alone would say, the on-grid and the conservative answer."""
    found: list[Alternative] = []
    rest = [c for c in question.landmarks(candidates) if c.group_size != chosen.group_size]
    reward = question.reward(chosen)
    if question.fits.method == "prior":
        base = question.preference.distance(chosen.group_size, chosen)
        for c in rest:
            loss = question.preference.distance(c.group_size, chosen) - base
            found.append(_alternative("near-tie" if loss <= TIE else "other", c, None, loss))
        return tuple(found)
    rewards = [(c, question.reward(c)) for c in rest]
    if reward is not None:
        known = [(c, r) for c, r in rewards if r is not None]
        found += [
            _alternative("near-tie", c, r, reward - r) for c, r in known if abs(r - reward) <= TIE * question.span
        ]
        best = max(known, key=lambda pair: pair[1], default=None)
        if best is not None and best[1] > reward + TIE * question.span:
            kind = "beyond-grid" if best[0].group_size > question.largest else "best-by-curves"
            found.append(_alternative(kind, best[0], best[1], reward - best[1]))
    else:
        found += _law_neighbour(question, chosen, rest)
    on_grid = [c for c in candidates if question.smallest <= c.group_size <= question.largest]
    if chosen.group_size > question.largest and on_grid:
        best_on_grid = question.preference.best(on_grid)
        found.append(_alternative("on-grid", best_on_grid, question.reward(best_on_grid), None))
    careful = question.preference.careful().best(candidates)
    if careful.group_size != chosen.group_size:
        r = question.reward(careful)
        found.append(_alternative("conservative", careful, r, None if r is None or reward is None else reward - r))
    return tuple(found)


def _law_neighbour(question: Question, chosen: Candidate, rest: Sequence[Candidate]) -> list[Alternative]:
    """Without rewards: the neighbouring size, where rounding the law's n to a power of two was a close call."""
    distance = question.preference.distance
    close = [c for c in rest if distance(c.group_size, chosen) <= 0.75]
    return [_alternative("next-power-of-two", c, None, None) for c in close]


def _alternative(kind: str, c: Candidate, reward: float | None, loss: float | None) -> Alternative:
    return Alternative(kind, c.group_size, c.problems_per_batch, c.update_steps, reward, loss)


def binding(question: Question, chosen: Candidate, rejections: Sequence[Rejection]) -> tuple[str, ...]:
    """Constraints that kept a better n or a larger batch out, then what ends M."""
    preference, fixed, limits = question.preference, question.limits.fixed, question.limits
    found = [r.constraint for r in [_best_rejected(question, chosen, rejections)] if r is not None]
    if fixed.update_steps is not None and fixed.problems_per_batch is None and fixed.rollouts_per_batch is None:
        found.append(ends_batch(chosen.group_size, chosen.problems_per_batch, fixed.update_steps, limits))
    wanted = preference.wanted(chosen)
    if wanted is not None and wanted > question.largest * 2**0.5 and chosen.group_size <= question.largest:
        found.append("group_size_grid")
    return (*dict.fromkeys(found), chosen.ends_by)


def _best_rejected(question: Question, chosen: Candidate, rejections: Sequence[Rejection]) -> Rejection | None:
    """The group size that would have been preferred most, had it been possible."""
    fixed, preference = question.limits.fixed, question.preference
    if isinstance(preference, LawPreference) and None not in (fixed.problems_per_batch, fixed.update_steps):
        useful = question.fits.law(preference.law).saturation * 2**0.5
        larger = [r for r in rejections if chosen.group_size < r.group_size <= useful]
        return max(larger, key=lambda r: r.group_size, default=None)
    reach = preference.distance(chosen.group_size, chosen) - 1e-9
    if isinstance(preference, RewardPreference):
        rejections = [r for r in rejections if question.smallest <= r.group_size <= question.largest]
    better = [r for r in rejections if preference.distance(r.group_size, chosen) < reach]
    return min(better, key=lambda r: preference.distance(r.group_size, chosen), default=None)
