"""JSON schema of the spec files, for editors that check and complete YAML."""

from __future__ import annotations

from typing import Any

from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.study import Study

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(type: type[Spec] = Study) -> dict[str, Any]:
    """JSON schema of the YAML form of a spec type.

    It accepts every file that the loader accepts. The loader checks more: ranges of numbers written as text, and
    fields that must fit together.
    """
    return {"$schema": DIALECT, **type.model_json_schema(mode="validation")}
