"""`Sweep`: a grid over (group_size, problems_per_batch), and its runs."""

from __future__ import annotations

from typing import Annotated, Protocol, Self

from pydantic import model_validator

from isocompute_sdk.specs.base import Spec, in_unit
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.specs.syntax.quantities import Count, Items, Levels, Number, Quantity

GroupSize = Annotated[int, Number(whole=True, ge=2)]
Seed = Annotated[int, Number(whole=True, ge=0, lt=2**32)]


class HasSizes(Protocol):
    """What has the three sizes of a run."""

    @property
    def group_size(self) -> int: ...  # noqa: D102
    @property
    def problems_per_batch(self) -> int: ...  # noqa: D102
    @property
    def update_steps(self) -> int: ...  # noqa: D102


class Sized:
    """Base of classes with n, B_p and M: what follows from the three."""

    @property
    def rollouts_per_batch(self: HasSizes) -> int:
        """Rollouts in one batch, B = n * B_p."""
        return self.group_size * self.problems_per_batch

    @property
    def rollouts(self: HasSizes) -> int:
        """Sampling compute of the whole run, C = n * B_p * M, in rollouts."""
        return self.group_size * self.problems_per_batch * self.update_steps

    @property
    def sizes(self: HasSizes) -> str:
        """The three, in words."""
        return f"n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}"


class Allocation(Sized, Spec):
    """One way to spend C = group_size * problems_per_batch * update_steps rollouts."""

    group_size: Annotated[GroupSize, in_unit("rollouts per problem")]
    """Rollouts per problem in one batch, n."""
    problems_per_batch: Annotated[Count, in_unit("problems")]
    """Distinct problems per batch, B_p."""
    update_steps: Annotated[Count, in_unit("update steps")]
    """Policy updates, M."""
    seed: Seed = 0
    """Seed of the run."""
    learning_rate_anchor: Quantity | None = None
    """Learning rate at the recipe's anchor batch. None: the recipe's."""


class Sweep(Spec):
    """All pairs of `group_size` and `problems_per_batch` within the batch limits, each once per seed.

    Examples:
        >>> sweep = iso.Sweep(group_size=[8, 64], problems_per_batch=32, rollouts="100k")
        >>> [(run.group_size, run.update_steps) for run in sweep.expand()]
        [(8, 390), (64, 48)]
    """

    group_size: Annotated[tuple[GroupSize, ...], Items(), in_unit("rollouts per problem")]
    """Group sizes n to try, in rollouts per problem."""
    problems_per_batch: Annotated[Levels, in_unit("problems")]
    """Numbers of problems per batch B_p to try."""
    rollouts: Annotated[Count | None, in_unit("rollouts")] = None
    """Length of every run in rollouts, C; rounded down to whole update steps. Give this or update_steps."""
    update_steps: Annotated[Count | None, in_unit("update steps")] = None
    """Length of every run in update steps, M. Give this or rollouts."""
    rollouts_per_batch: Annotated[Levels | None, in_unit("rollouts")] = None
    """Keep only pairs whose batch n * B_p is one of these, in rollouts (fixed-batch study). None: keep all."""
    max_rollouts_per_batch: Annotated[Count | None, in_unit("rollouts")] = None
    """Keep only pairs whose batch n * B_p is at most this, in rollouts. None: keep all."""
    seeds: Annotated[tuple[Seed, ...], Items(alone=False)] = (0,)
    """List of seeds; every pair runs once per seed and learning rate. A bare number is refused: `seeds: 2` could mean
    two seeds, [0, 1], or the one seed [2]."""

    learning_rate_anchor: Annotated[tuple[Quantity, ...], Items()] | None = None
    """Learning rates at the recipe's anchor batch to try, each with its rule for other batches. None: the recipe's."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The (group_size, problems_per_batch) that are kept, by problems_per_batch and then group_size."""
        allowed, limit = self.rollouts_per_batch, self.max_rollouts_per_batch
        return tuple(
            (n, bp)
            for bp in self.problems_per_batch
            for n in self.group_size
            if (allowed is None or n * bp in allowed) and (limit is None or n * bp <= limit)
        )

    def expand(self) -> tuple[Allocation, ...]:
        """Every run of the sweep."""
        return tuple(
            Allocation(
                group_size=n,
                problems_per_batch=bp,
                update_steps=self._steps(n * bp),
                seed=seed,
                learning_rate_anchor=rate,
            )
            for n, bp in self.pairs
            for rate in self.learning_rate_anchor or (None,)
            for seed in self.seeds
        )

    def _steps(self, rollouts_per_batch: int) -> int:
        return self.update_steps if self.update_steps is not None else (self.rollouts or 0) // rollouts_per_batch

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.rollouts is None) == (self.update_steps is None):
            which = "neither rollouts nor update_steps" if self.rollouts is None else "both rollouts and update_steps"
            raise problem(
                message=f"received {which}; accepted: exactly one of them",
                hint="It sets the length of every run: in rollouts (same compute) or in update steps.",
            )
        return self

    @model_validator(mode="after")
    def _every_cell_runs(self) -> Self:
        if not self.pairs:
            smallest = min(self.group_size) * min(self.problems_per_batch)
            largest = max(self.group_size) * max(self.problems_per_batch)
            raise problem(
                message=f"no pair is left: batches n * B_p run from {smallest} to {largest}, but rollouts_per_batch = "
                f"{self.rollouts_per_batch}, max_rollouts_per_batch = {self.max_rollouts_per_batch}",
                hint="Widen group_size or problems_per_batch, or relax the batch limits.",
            )
        short = [(n, bp) for n, bp in self.pairs if self._steps(n * bp) < 1]
        if short:
            n, bp = max(short, key=lambda pair: pair[0] * pair[1])
            raise problem(
                message=f"group_size = {n} with problems_per_batch = {bp} takes {n} * {bp} = {n * bp} rollouts per "
                f"update step, more than rollouts = {self.rollouts}: no step fits",
                hint=f"Set rollouts to at least {n * bp}, or max_rollouts_per_batch to at most {self.rollouts}.",
                field="rollouts",
            )
        return self
