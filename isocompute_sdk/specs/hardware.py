"""`Hardware`: limits on rollout batches, and numbers of GPUs."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from isocompute_sdk.specs.base import Spec, in_unit
from isocompute_sdk.specs.syntax.quantities import Count, Levels


class _OneOrSeveral:
    """Read like `Levels`, but keep one number as a plain int."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        levels = handler.generate_schema(Levels)
        plain = core_schema.simple_ser_schema("any")
        return core_schema.no_info_after_validator_function(_unwrap, levels, serialization=plain)


def _unwrap(counts: tuple[int, ...]) -> int | tuple[int, ...]:
    return counts[0] if len(counts) == 1 else counts


class Hardware(Spec):
    """Limits on the rollout batch B = group_size * problems_per_batch, and the GPUs that a run may have."""

    max_rollouts_per_batch: Annotated[Count | None, in_unit("rollouts")] = None
    """Largest rollout batch, B_max, in rollouts. None: not limited."""
    gpus: Annotated[int | tuple[int, ...], _OneOrSeveral(), in_unit("GPUs")] = 1
    """GPUs that train one run; several numbers if the run must fit several machine sizes. A plan in time chooses one of
    them if the throughput has `gpu_exponent`."""
    divisible_by: Annotated[Count | None, in_unit("rollouts")] = None
    """Every rollout batch must be a multiple of this. None: of every number in `gpus`."""

    @property
    def gpu_counts(self) -> tuple[int, ...]:
        """`gpus` as a tuple, also if it is one number."""
        return (self.gpus,) if isinstance(self.gpus, int) else self.gpus

    @property
    def divisor(self) -> int:
        """The number of which every rollout batch must be a multiple (1: any batch will do)."""
        return self.divisible_by if self.divisible_by is not None else math.lcm(*self.gpu_counts)

    def refusal(self, rollouts_per_batch: int) -> str | None:
        """Why this rollout batch cannot run here, with the arithmetic; None if it can."""
        limit, divisor = self.max_rollouts_per_batch, self.divisor
        if limit is not None and rollouts_per_batch > limit:
            return f"{rollouts_per_batch} rollouts per batch > max_rollouts_per_batch = {limit}"
        if rollouts_per_batch % divisor:
            rest = rollouts_per_batch % divisor
            return f"{rollouts_per_batch} rollouts per batch is not a multiple of {divisor} (rest {rest})"
        return None
