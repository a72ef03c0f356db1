"""What the budget decides between, and what trial runs are expected to change: expected value of sample information.

The draws of a surface are possible truths. A trial run of configuration r would show, under draw d, its rewards at a
few points, with evaluation noise and run-to-run effects. The posterior mean reward of every choice is regressed over
the draws on these numbers (Strong, Oakley & Brennan, Med. Decis. Making 35, 2015), far less noisy with 200 draws
than reweighting them by likelihood. After each simulated trial n is chosen as by the planner, by the largest expected
reward with what is left of the budget. `prospects` asks the same draws which runs of a pilot may still win.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.specs.sweep import Sized
from isocompute_sdk.tolerances import MIN_LEVELS, MIN_UPDATES

POINTS = (1.0, 1 / 3, 1 / 9)
"""Where a trial run is looked at, as shares of its length; each stands for the evaluations down to the next."""
EVALUATIONS = 20
"""Evaluations of a trial run, where nobody says how many."""
CORRELATED = 1.5
"""Factor on the variance of a mean of evaluations, since their noise is mostly correlated."""
SLOPE_WIDTH = 0.25
"""Width in ln C over which the slope of a curve is taken."""
FRACTIONS: Array = np.array([0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0])
"""Shares of the budget at which rewards are computed; those between are interpolated."""


@dataclass(frozen=True)
class Trial(Sized):
    """One run that could be made."""

    group_size: int
    problems_per_batch: int
    update_steps: int
    seed: int
    cost: float
    """In the budget's unit."""
    share: float = 0.0
    """Of what is left (`Pricing.share`)."""
    continues: str | None = None
    begins: int = 0
    """Update steps that the continued run has already."""


Problems = float | Array | None


def alone(problems_Q: Array) -> Problems:
    """B_p as it is."""
    return problems_Q


def runs_of(fits: Fits) -> list[Trial]:
    """The runs behind fits; without their table one for each configuration, which cannot be continued by name."""
    if fits.runs is not None:
        columns, constants = fits.runs["columns"], fits.runs["constants"]
        names = ("run_id", "group_size", "problems_per_batch", "seed", "rollouts")
        count = len(columns["rollouts"])
        rows = zip(*(columns.get(name, [constants.get(name)] * count) for name in names), strict=True)
        named: dict[str, Trial] = {}
        for run_id, n, bp, seed, rollouts in rows:
            if bp is not None and (n, bp) in fits.curves and rollouts > 0:
                known = named.get(run_id)
                steps = max(1, round(rollouts / (n * bp)), 0 if known is None else known.begins)
                named[run_id] = Trial(n, bp, steps, seed or 0, 0.0, continues=run_id, begins=steps)
        if named:
            return sorted(named.values(), key=lambda one: one.continues or "")
    known = {key: curve.last_compute for key, curve in fits.curves.items()}
    return [Trial(n, bp, max(1, round(last / (n * bp))), 0, 0.0) for (n, bp), last in known.items() if bp is not None]


@dataclass(frozen=True)
class Choices:
    """The configurations that the budget decides between, with their rewards in every draw."""

    group_size_J: npt.NDArray[np.int64]
    problems_J: npt.NDArray[np.int64]
    reward_FDJ: Array
    """At each of `FRACTIONS` of the budget."""
    planned_J: npt.NDArray[np.bool_]
    """Whether a plan may choose it without further runs."""
    span: float
    """Width of the metric's range."""
    plan: int | None = None
    """Position of the present plan; None where the planner's rule finds it."""
    from_trials: bool = False
    """Whether a plan may choose the group sizes of the trials, up to an octave above, and no others: nothing was run
    before."""

    @classmethod
    def of(
        cls,
        surface: Surface,
        pairs: Sequence[tuple[int, int]],
        steps_JF: npt.NDArray[np.int64],
        least: int,
        *,
        compute: Callable[[float], float] = float,
        reachable: Callable[[Array], Problems] = alone,
        planned: Collection[int] | None = None,
        plan: tuple[int, int] | None = None,
        from_trials: bool = False,
    ) -> Choices | None:
        """The pairs (n, B_p) for which the budget buys a plan, with their rewards; None if it buys none.

        `steps_JF` holds the update steps that each of `FRACTIONS` of the budget buys of each pair.
        """
        kept = [pair for pair, steps_F in zip(pairs, steps_JF, strict=True) if steps_F[-1] >= least]
        if not kept:
            return None
        steps_JF = steps_JF[steps_JF[:, -1] >= least]
        sizes_J, problems_J = np.array(kept, dtype=np.int64).T
        rollouts_JF = np.maximum(steps_JF, 1) * (sizes_J * problems_J)[:, None]
        spent = np.array([compute(float(one)) for one in rollouts_JF.ravel()])
        sizes_JF, problems_JF = (np.repeat(one_J.astype(float), len(FRACTIONS)) for one_J in (sizes_J, problems_J))
        reward_DJF = surface.draws(spent, sizes_JF, reachable(problems_JF)).reshape(-1, *steps_JF.shape)
        # What is too little for a plan leaves the base model.
        reward_DJF = np.where(steps_JF >= least, reward_DJF, surface.parameters_DP[:, :1, None])
        planned_J = np.isin(sizes_J, sizes_J if planned is None else list(planned))
        return cls(
            sizes_J,
            problems_J,
            reward_DJF.transpose(2, 0, 1),
            planned_J if planned_J.any() else np.ones(len(kept), dtype=bool),
            surface.layout.top - surface.layout.floor,
            kept.index(plan) if plan in kept else None,
            from_trials,
        )

    @property
    def reward_DJ(self) -> Array:
        """Rewards with the whole budget."""
        return self.reward_FDJ[-1]

    def rewards_after(self, share_E: Array, kept_EJ: Array) -> Array:
        """Rewards with what E sets of trials leave, shape (E, D, J).

        Args:
            share_E: share that each set takes.
            kept_EJ: what of that is no loss, since the choice continues a trial run.
        """
        left_EJ = np.clip(1.0 - (share_E[:, None] - kept_EJ), FRACTIONS[0], 1.0)
        upper_EJ = np.clip(np.searchsorted(FRACTIONS, left_EJ), 1, len(FRACTIONS) - 1)
        weight_EJ = (left_EJ - FRACTIONS[upper_EJ - 1]) / (FRACTIONS[upper_EJ] - FRACTIONS[upper_EJ - 1])
        at_J = np.arange(left_EJ.shape[1])
        low = self.reward_FDJ[upper_EJ - 1, :, at_J[None, :]].transpose(0, 2, 1)
        high = self.reward_FDJ[upper_EJ, :, at_J[None, :]].transpose(0, 2, 1)
        return low + (high - low) * weight_EJ[:, None, :]

    def allowed(self, trials: Sequence[Trial]) -> npt.NDArray[np.bool_]:
        """Which of them a plan may choose once these trials, one or more, are run: up to their n, at their B_p."""
        found = self.planned_J
        if self.from_trials:
            ran = [t.group_size for t in trials]
            return (self.group_size_J >= min(ran)) & (self.group_size_J <= 2 * max(ran))
        sizes = [*self.group_size_J[found].tolist(), *(t.group_size for t in trials)]
        problems = {*self.problems_J[found].tolist(), *(t.problems_per_batch for t in trials)}
        inside = (self.group_size_J >= min(sizes)) & (self.group_size_J <= max(sizes))
        return found | (inside & np.isin(self.problems_J, list(problems)))


@dataclass(frozen=True)
class Worth:
    """What a set of trials is expected to change."""

    saving: float
    """Expected reward at the target that a better choice gains, less what the plan loses since they are paid for; if
    the draws are right. May be negative."""
    chosen_J: Array
    """Probability that each choice is planned afterwards."""


class Outlook:
    """Asks what sets of trials are worth; what it needs of each trial is computed once.

    Args:
        surface: draws of possible truths.
        choices: what the budget decides between.
        rng: the randomness of simulated evaluations: the same for every trial, so that trials are compared in pairs.
        compute: rollouts on the surface's axis.
        reachable: B_p as the surface is asked for it.
        evaluations: evaluations of a trial run.
    """

    def __init__(
        self,
        surface: Surface,
        choices: Choices,
        rng: np.random.Generator,
        compute: Callable[[float], float] = float,
        evaluations: int = EVALUATIONS,
        reachable: Callable[[Array], Problems] = alone,
    ) -> None:
        self.surface = surface
        self.choices = choices
        self.compute = compute
        self.evaluations = evaluations
        self.reachable = reachable
        self._rng = rng
        self._noise: list[Array] = []
        self.best_D = choices.reward_DJ.max(axis=1)

    @property
    def now(self) -> int:
        """Position of the choice that is planned without trials."""
        return self._planned(self.choices.planned_J)

    @property
    def regret_now(self) -> float:
        """Expected reward that it loses against the best choice of each draw."""
        return float((self.best_D - self.choices.reward_DJ[:, self.now]).mean())

    def _planned(self, allowed_J: npt.NDArray[np.bool_]) -> int:
        reward_DJ = self.choices.reward_DJ
        if self.choices.plan is not None and np.array_equal(allowed_J, self.choices.planned_J):
            return self.choices.plan
        return int(np.argmax(np.where(allowed_J, np.round(reward_DJ.mean(axis=0), 12), -np.inf)))

    def shown(self, trials: Sequence[Trial]) -> tuple[Array, Array]:
        """What each trial would show: noise-free rewards (E, D, Q), and the covariance of their noise (E, Q, Q)."""
        batches = [t.group_size * t.problems_per_batch for t in trials]
        end_E = np.array([self.compute(b * t.update_steps) for b, t in zip(batches, trials, strict=True)])
        begin_E = np.array([self.compute(b * t.begins) for b, t in zip(batches, trials, strict=True)])
        share_Q = np.array(POINTS)
        at_EQ = end_E[:, None] * share_Q
        # A continued run shows only what lies beyond its present end.
        beyond = begin_E[:, None] > 0
        at_EQ = np.where(beyond, begin_E[:, None] + (end_E - begin_E)[:, None] * share_Q, at_EQ)
        size_EQ = np.repeat([[float(t.group_size)] for t in trials], len(POINTS), axis=1)
        problems_EQ = np.repeat([[float(t.problems_per_batch)] for t in trials], len(POINTS), axis=1)

        def drawn(compute_EQ: Array) -> Array:
            problems = self.reachable(problems_EQ.ravel())
            flat = self.surface.draws(compute_EQ.ravel(), size_EQ.ravel(), problems, at=True)
            return flat.reshape(len(flat), *compute_EQ.shape).transpose(1, 0, 2)

        reward_EDQ = drawn(at_EQ)
        mean_EQ, slope_EQ = self._mean_and_slope(drawn, at_EQ, reward_EDQ)
        gain_EQ = mean_EQ - float(self.surface.parameters_DP[:, 0].mean())
        edges = np.append(share_Q, 0.0)
        count_EQ = np.broadcast_to(self.evaluations * (edges[:-1] - edges[1:]), at_EQ.shape)
        if begin_E.any():
            # A continued run carries the luck that its evaluations have already shown: what is new is the change.
            start_EQ = np.where(beyond, begin_E[:, None], 1.0) * np.ones(len(POINTS))
            start_EDQ = drawn(start_EQ)
            before_EQ, earlier_EQ = self._mean_and_slope(drawn, start_EQ, start_EDQ)
            reward_EDQ = reward_EDQ - np.where(beyond[:, :, None], start_EDQ, 0.0)
            gain_EQ = np.where(beyond, mean_EQ - before_EQ, gain_EQ)
            slope_EQ = np.where(beyond, slope_EQ - earlier_EQ, slope_EQ)
            count_EQ = count_EQ * np.where(beyond, 1.0 - (begin_E / end_E)[:, None], 1.0)
        own_EQ = CORRELATED * self.surface.noise**2 / np.maximum(count_EQ, 1.0)
        noise_EQQ = np.einsum("eq,er->eqr", gain_EQ, gain_EQ) * self.surface.run_share**2
        noise_EQQ += np.einsum("eq,er->eqr", slope_EQ, slope_EQ) * self.surface.run_midpoint**2
        return reward_EDQ, noise_EQQ + own_EQ[:, :, None] * np.eye(len(POINTS))

    @staticmethod
    def _mean_and_slope(drawn: Callable[[Array], Array], compute_EQ: Array, reward_EDQ: Array) -> tuple[Array, Array]:
        """Mean reward, and its slope per unit of ln C."""
        mean_EQ = reward_EDQ.mean(axis=1)
        return mean_EQ, (mean_EQ - drawn(compute_EQ * np.exp(-SLOPE_WIDTH)).mean(axis=1)) / SLOPE_WIDTH

    def saving(self, trials: Sequence[Trial]) -> float:
        """What all of these trials together save, their cost included."""
        reward_EDQ, noise_EQQ = self.shown(trials)
        last, before = (reward_EDQ[-1:], noise_EQQ[-1:]), (reward_EDQ[:-1], noise_EQQ[:-1])
        return self.worth(trials[:-1], trials[-1:], last, before)[0].saving

    def worth(
        self, beside: Sequence[Trial], trials: Sequence[Trial], shown: tuple[Array, Array], before: tuple[Array, Array]
    ) -> list[Worth]:
        """What each trial is worth together with all of `beside`.

        Args:
            beside: trials that are made in any case.
            trials: candidates, E of them.
            shown: `shown(trials)`.
            before: `shown(beside)`.
        """
        choices = self.choices
        reward_EDQ, noise_EQQ = _joined(before, shown)
        share_E = np.array([t.share for t in trials]) + sum(t.share for t in beside)
        kept_EJ = np.stack([self._kept([*beside, t]) for t in trials])
        target_EDJ = choices.rewards_after(share_E, kept_EJ)
        allowed_EJ = np.stack([choices.allowed([*beside, t]) for t in trials])
        without_E = np.array([self._planned(allowed) for allowed in allowed_EJ])
        # Levels that all choices share cancel: what is regressed is by how much each differs from the plan.
        level_ED = np.take_along_axis(target_EDJ, without_E[:, None, None], axis=2)[:, :, 0]
        wanted_EDJ = target_EDJ - level_ED[:, :, None]
        mean_EJ = wanted_EDJ.mean(axis=1)
        moved_ESJ = self._posterior_means(reward_EDQ, noise_EQQ, wanted_EDJ - mean_EJ[:, None, :])
        mean_ESJ = mean_EJ[:, None, :] + moved_ESJ
        score_ESJ = np.where(allowed_EJ[:, None, :], mean_ESJ, -np.inf)
        chosen_ES = np.argmax(score_ESJ, axis=2)
        won_ES = np.take_along_axis(mean_ESJ, chosen_ES[:, :, None], axis=2)[:, :, 0]
        # More group sizes to choose from are worth nothing by themselves.
        whole_J = choices.reward_DJ.mean(axis=0)
        whole_E = np.maximum(whole_J[without_E], whole_J[self.now])
        saving_E = won_ES.mean(axis=1) - (whole_E - level_ED.mean(axis=1))
        chance_EJ = np.stack(
            [np.bincount(row, minlength=len(choices.group_size_J)) / chosen_ES.shape[1] for row in chosen_ES]
        )
        return [Worth(float(saving), chance_J) for saving, chance_J in zip(saving_E, chance_EJ, strict=True)]

    def _posterior_means(self, shown_EDQ: Array, noise_EQQ: Array, wanted_EDT: Array) -> Array:
        """How far the posterior mean of each target moves in simulated trials, shape (E, S, T).

        Linear in what is shown; scaled down by the share of the variance that a regression on so few draws explains by
        chance, so that numbers that say nothing move nothing.
        """
        draws, width = shown_EDQ.shape[1:]
        centred_EDQ = shown_EDQ - shown_EDQ.mean(axis=1, keepdims=True)
        signal_EQQ = centred_EDQ.transpose(0, 2, 1) @ centred_EDQ / draws
        both_EQQ = signal_EQQ + noise_EQQ
        cross_EQT = centred_EDQ.transpose(0, 2, 1) @ wanted_EDT / draws
        slope_EQT = np.linalg.solve(both_EQQ, cross_EQT)
        freedom_E = np.einsum("eqr,erq->e", np.linalg.inv(both_EQQ), signal_EQQ)
        explained_ET = np.einsum("eqt,eqt->et", cross_EQT, slope_EQT)
        variance_ET = np.maximum((wanted_EDT**2).mean(axis=1), 1e-18)
        share_ET = np.clip(explained_ET / variance_ET, 0.0, 1.0)
        honest_ET = 1.0 - (1.0 - share_ET) * (draws - 1) / np.maximum(draws - 1 - freedom_E, 1.0)[:, None]
        factor_ET = np.sqrt(np.clip(honest_ET, 0.0, None) / np.maximum(share_ET, 1e-12))
        noise_EDQ = (np.linalg.cholesky(noise_EQQ) @ self._standard(draws, width).T).transpose(0, 2, 1)
        # Each draw with its noise and with the opposite noise: their mean is exact.
        simulated_ESQ = np.concatenate([centred_EDQ + noise_EDQ, centred_EDQ - noise_EDQ], axis=1)
        return (simulated_ESQ @ slope_EQT) * np.minimum(factor_ET, 1.0)[:, None, :]

    def _standard(self, draws: int, width: int) -> Array:
        """Standard normal noise, the same for every set of trials of this width, shape (D, Q)."""
        while len(self._noise) < width:
            self._noise.append(self._rng.standard_normal(draws))
        return np.stack(self._noise[:width], axis=1)

    def _kept(self, trials: Sequence[Trial]) -> Array:
        """Share of the longest trial at each choice, which is no loss if that trial is continued."""
        kept_J = np.zeros(len(self.choices.group_size_J))
        for trial in trials:
            same = (self.choices.group_size_J == trial.group_size) & (
                self.choices.problems_J == trial.problems_per_batch
            )
            kept_J[same] = np.maximum(kept_J[same], trial.share)
        return kept_J


def _joined(before: tuple[Array, Array], shown: tuple[Array, Array]) -> tuple[Array, Array]:
    """What the trials made in any case show, and behind it what each candidate shows."""
    first_BDQ, noise_BQQ = before
    reward_EDQ, noise_EQQ = shown
    if not len(first_BDQ):
        return reward_EDQ, noise_EQQ
    size, draws, each = reward_EDQ.shape
    fixed = first_BDQ.transpose(1, 0, 2).reshape(draws, -1)
    width = fixed.shape[1]
    joined = np.concatenate([np.broadcast_to(fixed, (size, draws, width)), reward_EDQ], axis=2)
    noise = np.zeros((size, width + each, width + each))
    for i, block in enumerate(noise_BQQ):
        noise[:, i * each : (i + 1) * each, i * each : (i + 1) * each] = block
    noise[:, width:, width:] = noise_EQQ
    return joined, noise


LOOKS = (0.2, 0.5)
"""Parts of a run's way at which it is judged; each look costs a restart."""
CHANCE = 0.07
"""Probability to be the best at the target below which a run is hopeless."""
TIED = 0.003
"""Share of the metric's range: a configuration has a share of a draw in proportion to exp(-loss / `TIED`)."""


@dataclass(frozen=True)
class Prospect:
    """What a pilot run may still become."""

    chance: float
    """Probability that its configuration is the best at the target budget, among those that are not hopeless."""
    hopeless: bool
    """Whether going on can no longer change the plan."""


def prospects(
    fits: Fits,
    runs: Sequence[tuple[int, int, float]],
    budget: float,
    ended: Collection[tuple[int, int]] = (),
) -> tuple[Prospect, ...]:
    """Which runs to stop, judged at the target budget and never at their current compute.

    Small n lead early and lose later; only what the draws of the surface predict at the target counts, compared within
    each draw. The least probable configuration is dropped first, then the others are compared again: of two that are
    equally good, one stays. Data of a stopped run still count in every fit.

    Args:
        fits: of all runs so far.
        runs: those that go on: group size, problems per batch, and rollouts so far.
        budget: the target, in rollouts: what the plan will spend.
        ended: (group size, problems per batch) of finished runs that were not stopped.

    Returns:
        One for each run, in the same order.
    """
    if fits.surface is None or not runs:
        raise PlanError("prospects need fits with a surface, and runs", "Fit with method='surface'.")
    going = list(dict.fromkeys((n, bp) for n, bp, _ in runs))
    early = {(n, bp) for n, bp, done in runs if not _judged(fits, n, bp, done)}
    left = list(dict.fromkeys([*going, *ended]))
    able = set(left) - early
    size_J, problems_J = np.array(left, dtype=float).T
    reward_DJ = fits.surface.draws(np.full(len(left), float(budget)), size_J, fits.reachable(problems_J))
    tied = TIED * (fits.surface.layout.top - fits.surface.layout.floor)
    dropped: dict[tuple[int, int], float] = {}
    while True:
        chances = dict(zip(left, _chances(reward_DJ, tied), strict=True))
        worst = min((one for one in left if one in able), key=lambda one: chances[one], default=None)
        if worst is None or chances[worst] >= CHANCE or len(left) == 1:
            break
        dropped[worst] = chances[worst]
        reward_DJ = np.delete(reward_DJ, left.index(worst), axis=1)
        left.remove(worst)
    return tuple(Prospect((chances | dropped)[n, bp], (n, bp) in dropped) for n, bp, _ in runs)


def _chances(reward_DJ: Array, tied: float) -> list[float]:
    """Share of the draws in which each is the best; those that are nearly as good share a draw."""
    weight_DJ = np.exp((reward_DJ - reward_DJ.max(axis=1, keepdims=True)) / tied)
    return (weight_DJ / weight_DJ.sum(axis=1, keepdims=True)).mean(axis=0).tolist()


def _judged(fits: Fits, n: int, problems: int, done: float) -> bool:
    """Whether a run and its rivals have gone far enough."""
    seen = sum(1 for (_, bp), curve in fits.curves.items() if bp in (None, problems) and curve.last_compute >= done / 2)
    return done >= MIN_UPDATES * n * problems and seen >= MIN_LEVELS
