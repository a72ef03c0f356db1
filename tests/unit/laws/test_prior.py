"""The hedged prior spans what was published, and no more."""

from __future__ import annotations

import json

import numpy as np
import pytest

import isocompute_sdk as iso
from tests.unit.cli.test_commands import Command


def test_the_range_of_n_widens_with_compute_up_to_all_plateaus() -> None:
    prior = iso.published_prior()
    widths = []
    for compute in (1e4, 1e6, 1e9):
        interval = prior.law_interval(compute, 0.99)
        assert interval is not None
        low, high = interval
        widths.append(float(np.log2(high[0] / low[0])))
    assert widths[0] < 0.5
    assert min(widths[1:]) > 4.8


def test_the_prior_names_no_model_and_says_that_it_holds_no_data() -> None:
    prior = iso.published_prior()
    assert prior.model is None
    assert prior.curves == {}
    assert [note.code for note in prior.notes] == ["constants-of-another-model"]
    assert prior.notes[0].data["plateaus"] == [16, 32, 64, 128, 512]
    assert prior == iso.published_prior()


@pytest.mark.parametrize(
    ("model", "words", "method", "plateaus"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "", "guru-math-easy", None),
        ("models/qwen2.5-7b-instruct", "--recipe hard", "guru-math-hard", None),
        ("models/qwen2.5-7b-instruct", "--recipe mixture", "guru-math-hard", None),
        ("Qwen/Qwen3-4B-Instruct-2507", "", "prior", [32, 64]),
        ("some/other", "", "prior", [16, 32, 64, 128, 512]),
    ],
)
def test_a_plan_for_a_published_model_uses_its_laws(
    isocompute: Command, model: str, words: str, method: str, plateaus: list[int] | None
) -> None:
    plan = json.loads(isocompute("plan", "--model", model, "--budget", "3M", *words.split(), "--json").stdout)
    notes = {note["code"]: note["data"] for note in plan["notes"]}
    named = iso.list_published()
    if method != "prior":
        (name,) = [one for one in named if one.endswith(method)]
        assert plan["group_size"] == iso.Planner(iso.published(name)).allocate("3M").group_size
        assert ("published-set-assumed" in notes) is not bool(words)
    else:
        assert notes["constants-of-another-model"]["plateaus"] == plateaus
    assert ("constants-of-another-model" in notes) is (method == "prior")
