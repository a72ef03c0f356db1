"""Every note of a plan: one case that earns it, one near by that does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Fits, FitsSet, Hardware, Note, Plan, Planner, Recipe
from isocompute_sdk.errors import python_form, shell_form
from isocompute_sdk.planning.plan import answer
from isocompute_sdk.planning.verdict import verdict_of
from isocompute_sdk.records import RunSet
from tests.unit.sweeps import recorded

EASY = "qwen2.5-7b-instruct/guru-math-easy"
Case = Callable[[dict[str, Fits]], Plan]


@pytest.fixture(scope="module")
def source(fitted: Fits, fitted_many: Fits) -> dict[str, Fits]:
    """Fits by name."""
    return {"data": fitted, "many": fitted_many}


def easy(**planner: object) -> Planner:
    return Planner(iso.published(EASY), **planner)  # type: ignore[arg-type]


def two_metrics(source: dict[str, Fits], other: Fits) -> Plan:
    return Planner(FitsSet({"avg@4": source["data"], "best@4": replace(other, metric="best@4", runs=None)})).allocate(
        "15M"
    )


def with_plateaus_at(fits: Fits, plateau: float) -> Fits:
    law = replace(fits.law(), L=0.0, b=plateau)
    return replace(fits, laws={**fits.laws, "group_size": law}, law_draws={}, curves=fits.curves)


def falling(after: float) -> Fits:
    """Runs at n = 8 and 32 whose reward falls from a compute on."""
    compute = np.geomspace(2e4, 8e6, 60)
    rows = [(n, c, 0.3 + 0.2 * c / (c + 1e5) - 0.08 * max(np.log(c / after), 0.0)) for n in (8, 32) for c in compute]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("n", "C", "avg@4"))}
    return iso.fit(iso.RunSet.from_columns(columns, problems_per_batch=32), draws=40)


CASES: dict[str, tuple[Case, Case]] = {
    "constants-of-another-model": (
        lambda s: easy(model="meta/llama", allow_other_model=True).allocate("3M"),
        lambda s: easy(model="qwen2.5-7b-instruct").allocate("3M"),
    ),
    "context-taken-for-granted": (
        lambda s: Planner(replace(s["data"], model=None), model="meta/llama").allocate("3M"),
        lambda s: Planner(replace(s["data"], model="llama"), model="meta/llama").allocate("3M"),
    ),
    "extrapolation-beyond-3x": (
        lambda s: Planner(s["data"]).allocate("70M", spend="all"),
        lambda s: Planner(s["data"]).allocate("59M", spend="all"),
    ),
    "beyond-grid": (
        lambda s: Planner(with_plateaus_at(s["data"], 11)).allocate("15M", beyond_grid=1),
        lambda s: Planner(with_plateaus_at(s["data"], 11)).allocate("15M"),
    ),
    "small-problem-set": (
        lambda s: easy().allocate("3M", n_problems=4999),
        lambda s: easy().allocate("3M", n_problems=5000),
    ),
    "below-problems-floor": (
        lambda s: easy().allocate("3M", problems_per_batch=31),
        lambda s: easy().allocate("3M", problems_per_batch=32),
    ),
    "batch-not-observed": (
        lambda s: Planner(s["data"]).allocate("3M", problems_per_batch=64),
        lambda s: Planner(s["data"]).allocate("3M", problems_per_batch=32),
    ),
    "few-update-steps": (
        lambda s: easy().allocate("3M", update_steps=49),
        lambda s: easy().allocate("3M", update_steps=50),
    ),
    "decline-within-budget": (
        lambda _: Planner(falling(after=2e6)).allocate("8M"),
        lambda _: Planner(falling(after=2e6)).allocate("1M"),
    ),
    "law-and-curves-disagree": (
        lambda s: Planner(with_plateaus_at(s["data"], 5)).allocate("15M"),
        lambda s: Planner(s["data"]).allocate("15M"),
    ),
    "metrics-disagree": (
        lambda s: two_metrics(s, with_plateaus_at(s["data"], 3)),
        lambda s: two_metrics(s, s["data"]),
    ),
    "kl-entropy-unpaired": (
        lambda s: easy(recipe=Recipe.preset("easy", kl_coef=0.0)).allocate("3M"),
        lambda s: easy(recipe=Recipe.preset("hard")).allocate("3M"),
    ),
    "off-policy-unstudied": (
        lambda s: easy(recipe=Recipe.preset("easy", updates_per_batch=2)).allocate("3M"),
        lambda s: easy(recipe=Recipe.preset("easy")).allocate("3M"),
    ),
}


def found(plan: Plan, code: str) -> list[Note]:
    return [note for note in plan.notes if note.code == code]


IN_TIME = {
    "evaluation-above-share",
    "speed-from-runs",
    "throughput-extrapolated",
}
"""Notes on time and money, which test_time.py covers."""
ON_RECIPES = {
    "off-policy-runs",
    "recipe-differs-from-runs",
}
"""Notes on runs and their recipe, which test_inheritance.py covers."""
ELSEWHERE = {"changed-by-hand"}
"""Notes that test_changes.py and experiment/test_next_runs.py cover."""
ON_RUNS_IN_TROUBLE = {
    "no-healthy-checkpoint",
    "forecast-uncertain",
}
"""Notes of a replan, which test_replan.py covers."""


@pytest.mark.parametrize("code", CASES)
def test_a_note_is_given_when_it_is_due_and_only_then(code: str, source: dict[str, Fits]) -> None:
    due, undue = CASES[code]
    (note,) = found(due(source), code)
    assert note.message
    assert note.severity in ("info", "warning")
    assert found(undue(source), code) == []


def test_runs_predict_for_the_model_that_is_named_unless_they_state_another(source: dict[str, Fits]) -> None:
    rewards = {
        theirs: Planner(replace(source["data"], model=theirs), model="meta/llama").allocate("3M").predicted_reward
        for theirs in (None, "meta/llama", "qwen")
    }
    assert rewards[None] == rewards["meta/llama"] is not None
    assert rewards["qwen"] is None


def test_no_note_of_the_planner_is_left_out_here(repository: Path) -> None:
    given: set[str] = set()
    for path in (repository / "isocompute_sdk" / "planning").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        first = [n.args[0] for n in calls if n.func.id == "Note" and n.args]  # type: ignore[union-attr]
        given |= {a.value for a in first if isinstance(a, ast.Constant)}
    assert len(given) > 10
    covered = IN_TIME | ON_RECIPES | ON_RUNS_IN_TROUBLE | ELSEWHERE
    assert given - covered == set(CASES) & given
    assert given >= covered


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct-1M", "meta-llama/Llama-3.1-8B-Instruct"])
def test_other_models_need_the_flag(name: str) -> None:
    with pytest.raises(iso.PlanError, match=r"Qwen/Qwen2\.5-7B-Instruct") as caught:
        easy(model=name)
    assert "allow_other_model=True" in (caught.value.hint or "")
    assert "--allow-other-model" in (caught.value.shell_hint or "")
    plan = easy(model=name, allow_other_model=True).allocate("3M")
    assert Planner.of(plan).allocate("3M").group_size == plan.group_size
    assert plan.model == name
    assert plan.predicted_reward is None
    assert plan.reward_interval is None
    assert all(a.predicted_reward is None for a in plan.alternatives)


@pytest.mark.parametrize(
    ("hardware", "options", "words"),
    [
        (Hardware(max_rollouts_per_batch=1024), {}, "at most 1,024 rollouts per batch"),
        (Hardware(), {"update_steps": 1000}, "M = 1,000"),
        (Hardware(), {"rollouts_per_batch": 1024}, "1,024 rollouts per batch"),
        (Hardware(), {"min_update_steps": 1000}, "1,000 update steps or more"),
    ],
)
def test_limits_that_were_asked_for_say_what_they_cost(
    source: dict[str, Fits], hardware: Hardware, options: dict[str, int], words: str
) -> None:
    limited = Planner(source["data"], hardware).allocate("3M", spend="all", **options)
    free = Planner(source["data"]).allocate("3M", spend="all")
    found = limited.unlimited
    assert found is not None
    # A smaller B_p would leave room for a larger n.
    smallest = "B_p of 32 or more, as in the runs or their recipe"
    assert found.asked == (words, smallest)
    lower = Planner(source["data"], hardware).allocate("3M", spend="all", problems_per_batch=16, **options)
    assert (lower.predicted_reward or 0) > (limited.predicted_reward or 0)
    assert lower.unlimited is not None
    assert smallest not in lower.unlimited.asked
    assert (found.plan.group_size, found.plan.predicted_reward) == (free.group_size, free.predicted_reward)
    assert free.unlimited is None
    # Whatever decides between the n: without odds their predictions do.
    named = ["limits" in verdict_of(one, None)[0].sentence for one in (limited, free)]
    assert named == [limited.group_size != free.group_size, False]
    assert free.predicted_reward is not None
    assert limited.predicted_reward is not None
    lost = round(round(free.predicted_reward, 3) - round(limited.predicted_reward, 3), 3)
    assert f"{words} and {smallest}: costs {lost:.3f}" in dict(answer(limited))["your limits"]


def test_conservative_plans_say_what_they_leave() -> None:
    planner = Planner(iso.fit(recorded("qwen2.5-7b-easy")))
    bold = planner.allocate("20M", slots=0)
    assert bold.unlimited is None
    for careful in (
        planner.allocate("20M", mode="conservative", slots=0),
        planner.allocate("20M", beyond_grid=0, slots=0),
    ):
        assert careful.group_size < bold.group_size
        assert careful.unlimited is not None
        assert careful.unlimited.plan.group_size == bold.group_size
    # Where no n above those that were run is better the mode costs nothing.
    # Where it changes nothing, it is named as well.
    same = planner.allocate("1M", mode="conservative", slots=0)
    assert same.unlimited is not None
    assert same.unlimited.plan.predicted_reward == same.predicted_reward


def test_many_passes_over_any_set_and_batches_beyond_all_that_were_studied_are_warned_of() -> None:
    # M = 183 at B_p = 32: 5,856 problems in all, of 70 the 83rd and last pass that the paper made.
    severity = {
        n: [note.severity for note in found(easy().allocate("3M", n_problems=n), "small-problem-set")]
        for n in (70, 4999)
    }
    assert severity == {70: ["warning"], 4999: ["info"]}
    fixed = Planner(iso.published(f"{EASY}:fixed-batch"))
    for plan, warned in (
        (easy().allocate("30M", problems_per_batch=129), True),
        (fixed.allocate("3M", rollouts_per_batch=4096), True),
        (fixed.allocate("3M", rollouts_per_batch=8192), False),
    ):
        assert ("rollouts_per_batch" in {name for n in found(plan, "batch-not-observed") for name in n.data}) == warned


def test_n_that_were_run_at_other_b_p_only_are_named(make_runs: Callable[..., RunSet]) -> None:
    planner = Planner(iso.fit(make_runs(levels=((8, 64), (16, 16), (32, 16), (32, 64)))))
    for problems, elsewhere in ((16, [8]), (64, [16])):
        (note,) = found(planner.allocate("3M", problems_per_batch=problems), "batch-not-observed")
        assert (note.severity, note.data["group_sizes"]) == ("info", elsewhere)


@pytest.mark.slow
def test_a_plateau_is_doubted_only_of_an_n_that_may_be_the_best() -> None:
    fits = iso.fit(recorded("mul31-hard"))
    plan = Planner(fits).allocate("1.2M")
    in_fits, in_plan = (
        {n for note in notes if note.code == "plateau-unidentified" for n, _ in note.data["configurations"]}
        for notes in (fits.notes, plan.notes)
    )
    assert plan.group_size in in_plan
    assert in_plan < in_fits
    unlikely = {one.group_size for one in plan.alternatives if one.odds is not None and one.odds.near_best < 0.05}
    assert unlikely
    assert not unlikely & in_plan


def test_an_assumed_learning_rate_says_how_python_gives_another(source: dict[str, Fits]) -> None:
    text = dict(answer(Planner(source["data"]).allocate("3M")))["learning rate"]
    (given,) = re.findall(r"\(recipe=(.*)\)", python_form(text))
    recipe = eval(given, {"Recipe": Recipe, "RATE": 2e-6})
    assert Planner(source["data"], recipe=recipe).allocate("3M").learning_rate == 2e-6
    assert shell_form(text).endswith("RATE)")
