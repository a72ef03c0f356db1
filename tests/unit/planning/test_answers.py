"""What plans say: ties, ranges, refusals, notes; each note appears when it should and only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk.laws import measured_easy
from tests.unit.sweeps import codes

EASY = "qwen2.5-7b-instruct/guru-math-easy"


@pytest.fixture(scope="module")
def measured() -> iso.Fits:
    columns, context = measured_easy()
    return iso.fit(iso.RunSet.from_columns(columns, metric="avg@4", **context), points="all", method="paper")


def test_without_data_the_answer_is_a_range_over_all_published_pairs_with_a_pilot() -> None:
    plan = iso.Planner(iso.published_prior()).allocate("10M")
    assert plan.group_size_interval is not None
    low, high = plan.group_size_interval
    assert low <= 16
    assert high == 512
    assert 16 <= plan.group_size <= 128
    assert plan.predicted_reward is None
    assert plan.next_runs == iso.Planner(iso.published_prior()).design_pilot("10M").first
    assert "constants-of-another-model" in codes(plan)


def test_a_law_without_curves_predicts_no_reward_and_names_the_neighbour() -> None:
    law, found = iso.published(f"{EASY}:joint").law(), set[bool]()
    for budget in np.geomspace(5e5, 3e6, 12):
        plan = iso.Planner(iso.published(f"{EASY}:joint")).allocate(float(budget), slots=0)
        assert plan.predicted_reward is None
        octaves = np.log2(float(law.predict(plan.rollouts)))
        near = {2**i for i in range(3, 12) if abs(i - octaves) <= 0.75} - {plan.group_size}
        assert {a.group_size for a in plan.alternatives if a.kind == "next-power-of-two"} == near
        found.add(bool(near))
    assert found == {True, False}


@pytest.mark.parametrize(
    "argument",
    [
        {"fits": None},
        {"fits": "fits.json"},
        {"fits": {"curves": []}},
        {"hardware": 8},
        {"recipe": "easy"},
        {"throughput": 5},
        {"evaluation": 4},
        {"model": 7},
    ],
)
def test_what_a_planner_cannot_use_is_refused_at_once(argument: dict[str, Any]) -> None:
    with pytest.raises(iso.PlanError, match=next(iter(argument))):
        iso.Planner(**{"fits": iso.published(EASY), **argument})
