"""Saved plans: what an earlier release wrote is read; what was edited or damaged is refused."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk import Budget, IsoComputeError, Plan
from isocompute_sdk.errors import DocumentError

DATA = Path(__file__).parent / "data"
NAMES = ("surface", "paper", "prior", "published", "timed")
MUTATIONS = 150
"""Per plan, once with digests and once without: 1,500 in all."""
STRANGE = (
    *(None, True, False, -1, 0, 1, 2, 7, 0.5, -0.25, 1e308, -1e308, 1e-320, 10**40, 2**63),
    *("", "x", "$(id)", "3M", "NaN", "\0", [], [1], [1, 2, 3], [[1]], {}, {"a": 1}),
)


def old(name: str) -> dict[str, Any]:
    """A plan that the release before digests saved."""
    return json.loads((DATA / f"{name}.json").read_text())


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


def with_later_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """An old plan with what plans, fits, surfaces and passports have gained since, at its default."""
    whole = json.loads(json.dumps(raw)) | {"settings": [], "next_runs": None}
    fits = whole.get("fits") or {}
    if fits:
        fits["settings"] = []
    if fits.get("surface") is not None:
        later = ("declines", "misfit", "inside", "late", "leading", "ends")
        fits["surface"] |= dict.fromkeys(later) | {"outlying": {}}
    for passport in (fits.get("passport"), whole.get("passport")):
        if passport is not None:
            passport["most_rise_seen"] = None
            if passport["backtest"] is not None:
                passport["backtest"] |= {"surprise": None, "by_run": []}
    return whole


@pytest.mark.parametrize("name", NAMES)
def test_plans_of_the_release_before_digests_are_read_and_written_to_the_same_numbers(name: str) -> None:
    raw = old(name)
    plan = Plan.from_dict(raw)
    again = plan.to_dict()
    digest = again.pop("digest")
    assert set(digest) == set(again) - {"kind", "schema_version"}
    assert numbers(again) == numbers(with_later_fields(raw))
    assert Plan.from_dict({**again, "digest": digest}) == plan
    assert plan.summary() == Plan.from_dict(again).summary()


@pytest.mark.parametrize("name", NAMES)
def test_no_mutation_of_a_saved_plan_ends_in_anything_but_a_plan_or_an_error_of_ours(name: str) -> None:
    rng = random.Random(NAMES.index(name))
    for with_digest in (True, False):
        raw = Plan.from_dict(old(name)).to_dict() if with_digest else old(name)
        paths = list(leaves(raw))
        for _ in range(MUTATIONS):
            changed = mutated(raw, rng, paths)
            try:
                plan = Plan.from_dict(changed)
            except IsoComputeError:
                continue
            assert plan.group_size * plan.problems_per_batch * plan.update_steps == plan.rollouts == raw["rollouts"]
            assert plan.cost <= plan.budget.available
            assert plan.learning_rate > 0
            assert plan.summary()
            if with_digest and "digest" in changed:
                assert numbers(changed) == numbers(raw)


def edits() -> dict[str, Callable[[dict[str, Any]], None]]:
    def put(**fields: Any) -> Callable[[dict[str, Any]], None]:
        return lambda raw: raw.update(fields)

    def both_costs(raw: dict[str, Any]) -> None:
        raw["update_steps"] *= 2
        raw["rollouts"] *= 2
        raw["cost"] *= 2
        raw["costs"] = {unit: 2 * cost for unit, cost in raw["costs"].items()}
        raw["breakdown"]["training"]["rollouts"] *= 2

    return {
        "group_size": put(group_size=1024),
        "rollouts": put(rollouts=1),
        "learning_rate": put(learning_rate=-1),
        "group_size_interval": put(group_size_interval="$(id)"),
        "predicted_reward": put(predicted_reward=1.5),
        "reward_interval": put(reward_interval=[0.9, 0.1]),
        "cost": both_costs,
        "update_steps": put(update_steps=183.0),
        "problems_per_batch": put(problems_per_batch="32"),
        "budget.rollouts": lambda raw: raw["budget"].update(rollouts=2_000_000),
        "hardware.max_rollouts_per_batch": lambda raw: raw["hardware"].update(max_rollouts_per_batch=1024),
        "recipe.learning_rate_anchor": lambda raw: raw["recipe"].update(learning_rate_anchor=1e-5),
    }


FOLLOWS = {
    "group_size": ["rollouts_per_batch"],
    "cost": ["breakdown.evaluation.rollouts"],
    "budget.rollouts": ["cost"],
    "hardware.max_rollouts_per_batch": ["rollouts_per_batch"],
    "recipe.learning_rate_anchor": ["learning_rate"],
}
"""The field at which an edit shows without digests, if it is another."""


@pytest.mark.parametrize("edit", edits())
@pytest.mark.parametrize("with_digest", [True, False])
def test_an_edited_plan_is_refused_with_the_field_and_the_way(edit: str, with_digest: bool) -> None:
    raw = Plan.from_dict(old("surface")).to_dict() if with_digest else old("surface")
    edits()[edit](raw)
    with pytest.raises(DocumentError) as caught:
        Plan.from_dict(raw)
    assert caught.value.field
    if with_digest:
        assert edit.split(".", maxsplit=1)[0] in caught.value.message
    else:
        assert caught.value.field in {edit, *FOLLOWS.get(edit, ())}
    assert "launch PLAN --change" in (caught.value.hint or "")


@pytest.mark.parametrize("field", ["predicted_reward", "notes", "model", "metric", "extrapolation", "fits", "verdict"])
def test_with_digests_every_changed_field_is_seen(field: str) -> None:
    raw = Plan.from_dict(old("surface")).to_dict()
    value = raw[field]
    raw[field] = {
        "predicted_reward": lambda: value + 1e-9,
        "notes": list,
        "fits": lambda: {**value, "source": "elsewhere"},
        "verdict": lambda: {**value, "kind": "tie"},
        "extrapolation": lambda: value / 2,
    }.get(field, lambda: "another")()
    with pytest.raises(DocumentError) as caught:
        Plan.from_dict(raw)
    assert caught.value.field == field


def test_a_plan_above_its_budget_cannot_be_made() -> None:
    plan = Plan.from_dict(old("paper"))
    with pytest.raises(DocumentError) as caught:
        Plan.from_dict({**old("paper"), "budget": Budget(rollouts=plan.rollouts - 1).model_dump(mode="json")})
    assert caught.value.field == "cost"
