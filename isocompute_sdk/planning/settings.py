"""Which (B_p, GPUs) a plan may have: every setting is enumerated with the steps it can afford, the best one is kept.

Where time decides, larger B_p may use the hardware better and more GPUs may keep a deadline; a budget in rollouts
knows neither. Settings are compared by the reward that is predicted for what their best candidate really spends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from isocompute_sdk.planning.candidates import Candidate, Rejection, enumerate_candidates
from isocompute_sdk.planning.question import Question

PROBLEMS_TOLERANCE = 0.005
"""Share of the metric's range that a smaller B_p may be predicted to lose before a larger one is taken."""
TIMED_TOLERANCE = 0.001
"""The same where time decides: there B_p is chosen for speed, and that is measured."""


@dataclass(frozen=True)
class Setting:
    """One smallest B_p on one number of GPUs, with what can be done there."""

    question: Question
    candidates: list[Candidate]
    rejections: list[Rejection]

    def best(self) -> Candidate:
        """The preferred candidate."""
        return self.question.preference.best(self.candidates, self.question.limits.fixed)

    @property
    def reward(self) -> float:
        """The surface's reward of the preferred candidate, for another model too: it decides n there as well."""
        best, fits = self.best(), self.question.fits
        at = self.question.pricing.compute(best.rollouts, fits.compute)
        return float(fits.predict(at, best.group_size, best.problems_per_batch).mean)


def choose_setting(question: Question, sizes: Sequence[int], gpu_counts: Sequence[int | None]) -> Setting:
    """The smallest B_p and fewest GPUs that are predicted to lose no more than the tolerance.

    Args:
        question: what is asked, at the recipe's floor of B_p.
        sizes: group sizes to choose from.
        gpu_counts: numbers of GPUs to choose from; None for that of the throughput, whatever the hardware says.

    Returns:
        A setting without candidates, with all reasons, where nothing fits.
    """
    floors = _floors(question, sizes)
    tried = [_setting(question, sizes, floor, gpus) for floor in floors for gpus in gpu_counts]
    able = [setting for setting in tried if setting.candidates]
    if not able:
        return replace(tried[0], rejections=[r for setting in tried for r in setting.rejections])
    if len(able) == 1:
        return able[0]
    if question.fits.surface is None:
        return max(able, key=lambda setting: setting.best().rollouts)
    rewards = [setting.reward for setting in able]
    share = TIMED_TOLERANCE if question.pricing.budget.timed else PROBLEMS_TOLERANCE
    enough = max(rewards) - share * question.span
    return next(setting for setting, reward in zip(able, rewards, strict=True) if reward >= enough)


def _setting(question: Question, sizes: Sequence[int], floor: int, gpus: int | None) -> Setting:
    limits, pricing = replace(question.limits, floor=floor), question.pricing
    if gpus is not None:
        pricing = pricing.at_gpus(gpus)
        limits = replace(limits, pricing=pricing, hardware=limits.hardware.replace(gpus=gpus))
    one = replace(question, limits=limits, pricing=pricing)
    return Setting(one, *enumerate_candidates(sizes, limits))


def _floors(question: Question, sizes: Sequence[int]) -> list[int]:
    """Smallest B_p to try, increasing: the recipe's floor, and what runs show (and time makes worth) beyond it."""
    limits, fits, passport = question.limits, question.fits, question.fits.passport
    fixed, floor = limits.fixed, limits.floor
    if passport is None or not fixed.free:
        return [floor]
    levels = [bp for bp in fits.problems_per_batch if bp > floor]
    if question.pricing.budget.timed:
        levels += _for_speed(question, sizes)
    stable = [bp for bp in [floor, *sorted(set(levels))] if bp not in passport.unstable_problems_per_batch]
    return stable or [max([floor, *levels])]


def _for_speed(question: Question, sizes: Sequence[int]) -> list[int]:
    """B_p up to an octave above those that were run, in octaves; and those near the one batch that was timed."""
    floor, seen = question.limits.floor, question.fits.problems_per_batch
    most = 2 * max(seen, default=floor)
    found = [floor * 2**i for i in range(1, 31) if floor * 2**i <= most]
    throughput = question.pricing.throughput
    if throughput is not None and throughput.measured is not None and not throughput.measured.separates_batches:
        batches = throughput.measured.rollouts_per_batch
        found += [bp for n in sizes for batch in batches if floor < (bp := round(batch / n)) <= most]
    return found
