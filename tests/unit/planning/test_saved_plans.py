"""Saved plans and fits: read to the last bit; what was edited, damaged or stripped of its digest is refused."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk import Fits, Plan
from isocompute_sdk.errors import DocumentError, FieldError
from tests.parameters import few

NAMES = ("surface", "paper", "prior", "published", "timed")
MUTATIONS = 25
"""Per plan and per fits: 250 in all."""
STRANGE = (
    *(None, True, False, -1, 0, 1, 2, 7, 0.5, -0.25, 1e308, -1e308, 1e-320, 10**40, 2**63, float("nan")),
    *("", "x", "$(id)", "3M", "NaN", "\0", [], [1], [1, 2, 3], [[1]], {}, {"a": 1}),
)
Plans = dict[str, Plan]


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for key, child in children for leaf in leaves(child, (*path, key))]
    return iter(below or [path])


def mutated(raw: dict[str, Any], rng: random.Random, paths: list[tuple[str | int, ...]]) -> dict[str, Any]:
    """One leaf replaced or left out."""
    *above, last = rng.choice(paths)
    changed = copy.deepcopy(raw)
    place: Any = changed
    for key in above:
        place = place[key]
    value = place[last]
    kind = rng.random()
    if kind < 0.1:
        del place[last]
    elif kind < 0.4 and isinstance(value, int | float) and not isinstance(value, bool):
        place[last] = rng.choice([value * 2, value + 1, -value, value * 1.001, float(value), str(value)])
    else:
        place[last] = rng.choice(STRANGE)
    return changed


def numbers(value: object) -> object:
    """JSON with whole floats as integers, as the digest sees it; true is not 1."""
    if isinstance(value, dict):
        return {key: numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [numbers(part) for part in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return (value, type(value).__name__)


@pytest.mark.parametrize("name", few(NAMES, {"surface", "timed"}))
def test_a_mutated_plan_or_fit_is_refused_and_never_another_answer(plans: Plans, name: str, tmp_path: Path) -> None:
    rng = random.Random(NAMES.index(name))
    fits = plans[name].fits
    assert fits is not None
    file = tmp_path / "changed.json"
    documents: list[tuple[type[Plan] | type[Fits], dict[str, Any]]] = [
        (Plan, plans[name].to_dict()),
        (Fits, fits.to_dict()),
    ]
    for kind, raw in documents:
        paths = list(leaves(raw))
        for _ in range(MUTATIONS):
            changed = mutated(raw, rng, paths)
            file.write_text(json.dumps(changed))
            if numbers(changed) == numbers(raw):
                continue
            with pytest.raises(DocumentError) as caught:
                kind.load(file)
            assert caught.value.hint


def test_a_plan_without_its_digest_is_refused_with_the_command_that_changes_a_plan(plans: Plans) -> None:
    raw = plans["surface"].to_dict()
    raw["recipe"]["learning_rate_anchor"] *= 10
    del raw["digest"]
    with pytest.raises(DocumentError, match="change_plan") as caught:
        Plan.from_dict(raw)
    assert "launch PLAN --change" in str(caught.value.shell_hint)
    assert caught.value.field == "digest"


def test_a_plan_above_its_budget_or_with_the_costs_of_another_cannot_be_made(plans: Plans) -> None:
    plan = plans["paper"]
    with pytest.raises(FieldError, match="cost"):
        replace(plan, budget=plan.budget.replace(rollouts=plan.rollouts - 1))
    with pytest.raises(FieldError, match="rollouts"):
        replace(plan, update_steps=plan.update_steps - 1)
    timed = plans["timed"]
    with pytest.raises(FieldError, match="wall_hours"):
        replace(timed, budget=timed.budget.replace(deadline_hours=timed.costs["wall_hours"] * 0.999))
