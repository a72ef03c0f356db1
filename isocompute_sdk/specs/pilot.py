"""`Pilot`: a pilot whose runs are chosen while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from isocompute_sdk.specs.base import Count, Flag, Spec, in_unit
from isocompute_sdk.specs.sweep import Seed
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.specs.syntax.quantities import Number


class Pilot(Spec):
    """Runs chosen in rounds, from what the runs before have shown; `auto` alone stands for the defaults."""

    qualify: Flag = True
    """Check the recipe first, in short runs at two batch sizes."""
    stop_early: Flag = True
    """End a run once it can no longer change the plan at the target budget."""
    slots: Annotated[Count | None, in_unit("runs")] = None
    """Runs of a round after the first, whose number is part of its design. None: as many as the executor carries out at
    a time, at most 8."""
    largest_share: Annotated[float, Number(gt=0, lt=1), in_unit("share of the budget")] = 0.35
    """Largest share of the budget that checks and pilot may cost together."""
    seed: Seed = 0
    """Seed of the first runs, and of the random numbers behind the choices."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if value == "auto":
            return {}
        if not isinstance(value, Mapping | Pilot):
            raise problem(accepted=f"auto, or a mapping with {', '.join(cls.model_fields)}")
        return cast("Any", value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """`auto`, or a mapping."""
        return {"anyOf": [{"const": "auto"}, handler(schema)]}
