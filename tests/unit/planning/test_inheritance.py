"""The recipe that a plan takes from its runs, and what is said where runs, plan and script differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Fits, Note, Plan, PlanError, Planner, Recipe, RunSet, change_plan
from isocompute_sdk.ingest.stores.saved_config import read_config
from isocompute_sdk.planning.inheritance import Setting
from isocompute_sdk.records.columns import CONTEXT_FIELDS
from tests.unit.sweeps import codes

COMPUTE = np.geomspace(2e4, 2e6, 12)
GRID = ((8, 64), (32, 64), (128, 64), (8, 128), (32, 128), (128, 128))
RUNS: dict[str, Any] = {
    "learning_rate": 5e-6,
    "kl_coef": 0.0,
    "entropy_coef": 0.0,
    "max_tokens": 4096,
    "temperature": 1.0,
}


def sweep(grid: Any = GRID, metric: str = "avg@4", **context: Any) -> RunSet:
    """A run per configuration; a context value may be a function of (n, B_p)."""
    parts = []
    for n, bp in grid:
        reward = 0.4 + (0.1 + 0.03 * np.log2(n / 8)) * (1 - np.exp(-COMPUTE / (1e5 * (n / 8) ** 0.5)))
        own = {name: value(n, bp) if callable(value) else value for name, value in context.items()}
        columns = {"C": COMPUTE, "n": [n] * 12, "bp": [bp] * 12, metric: reward}
        parts.append(RunSet.from_columns(columns, run_id=f"n{n}-bp{bp}", **own))
    return parts[0].concat(*parts[1:])


def fits_of(grid: Any = GRID, *, pool: tuple[str, ...] = (), **context: Any) -> Fits:
    return iso.fit(sweep(grid, **context), method="paper", points="all", draws=0, pool=pool)


def note(plan: Plan, code: str) -> Note:
    (found,) = [one for one in plan.notes if one.code == code]
    return found


def row(plan: Plan, name: str) -> Setting:
    (found,) = [one for one in plan.settings if one.name == name]
    return found


def test_a_plan_trains_as_its_runs_did() -> None:
    runs = sweep(metric="avg@16", **RUNS, eval_temperature=1.0)
    plan = Planner(iso.fit(runs, method="paper", points="all", draws=0)).allocate("1M")
    assert plan.learning_rate == 5e-6
    assert (plan.recipe.kl_coef, plan.recipe.entropy_coef) == (0.0, 0.0)
    assert (plan.recipe.max_response_tokens, plan.recipe.temperature) == (4096, 1.0)
    assert plan.evaluation is not None
    assert plan.evaluation.temperature == 1.0
    assert plan.problems_per_batch in (64, 128)
    assert not [one.name for one in plan.settings if one.differs]
    assert {one.name for one in plan.settings if one.source == "runs"} >= set(RUNS) - {"eval_temperature"}
    # avg@k is measured again with k samples.
    assert (plan.evaluation.samples, row(plan, "eval_samples").source) == (16, "runs")
    # What the runs do not say is assumed, and named.
    assert set(plan.assumed) == {"algorithm", "updates_per_batch", "max_prompt_tokens", "top_p", "filter"}
    assert row(plan, "top_p").source == "assumed"


def test_a_plan_is_evaluated_with_the_samples_of_its_metric_where_runs_differ() -> None:
    fits = fits_of(metric="avg@16", eval_samples=lambda n, bp: 16 if n == 8 else 4, pool=("eval_samples",))
    plan = Planner(fits).allocate("1M")
    assert plan.evaluation is not None
    assert plan.evaluation.samples == 16
    assert row(plan, "eval_samples").source == "runs"


@pytest.mark.parametrize(("rule", "power"), [("constant", 0.0), ("sqrt", 0.5), ("linear", 1.0)])
def test_learning_rates_keep_the_rule_of_the_runs(rule: str, power: float) -> None:
    fits = fits_of(learning_rate=lambda n, bp: 3e-6 * (n * bp / 2048) ** power)
    plan = Planner(fits).allocate("30M", problems_per_batch=256)
    assert plan.recipe.learning_rate_rule == rule
    assert row(plan, "learning_rate_rule").source == "runs"
    assert plan.learning_rate == pytest.approx(3e-6 * (plan.rollouts_per_batch / 2048) ** power)
    assert not row(plan, "learning_rate").differs


def test_one_batch_leaves_the_rule_to_the_preset_and_its_rate_to_the_runs() -> None:
    fits = fits_of([(8, 256), (32, 64), (128, 16)], learning_rate=4e-6)
    plan = Planner(fits).allocate("1M", problems_per_batch=128)
    assert plan.recipe.learning_rate_rule == "sqrt"
    assert row(plan, "learning_rate_rule").source == "assumed"
    assert plan.learning_rate == pytest.approx(4e-6 * (plan.rollouts_per_batch / 2048) ** 0.5)


def test_rates_without_a_rule_are_those_of_the_nearest_runs() -> None:
    own = {(8, 64): 1e-6, (32, 64): 7e-6, (128, 64): 2e-6, (8, 128): 5e-6, (32, 128): 1e-6, (128, 128): 9e-6}
    fits = fits_of(learning_rate=lambda n, bp: own[n, bp], pool=("learning_rate",))
    for size in GRID:
        plan = Planner(fits).allocate("1M", problems_per_batch=size[1])
        assert plan.learning_rate == pytest.approx(own[plan.group_size, plan.problems_per_batch])
        assert set(note(plan, "recipe-differs-from-runs").data["fields"]) == {"learning_rate"}


def test_beside_runs_without_a_kl_term_no_entropy_bonus_is_assumed() -> None:
    plan = Planner(fits_of(kl_coef=0.0)).allocate("1M")
    assert row(plan, "entropy_coef") == Setting("entropy_coef", (), 0.0, "assumed", differs=False)
    assert plan.recipe.entropy_coef == 0
    assert Planner(fits_of(kl_coef=0.01)).allocate("1M").recipe.entropy_coef == Recipe().entropy_coef
    given = Planner(fits_of(kl_coef=0.0), recipe=Recipe(entropy_coef=0.002)).allocate("1M")
    assert given.recipe.entropy_coef == 0.002
    assert "kl-entropy-unpaired" in codes(given)


def test_the_recipe_of_a_study_comes_back_unchanged() -> None:
    recipe = Recipe.preset("hard", learning_rate_anchor=2e-6, temperature=0.9)
    fits = fits_of(learning_rate=lambda n, bp: recipe.learning_rate(n * bp), temperature=0.9, kl_coef=0.0)
    assert Planner(fits, recipe=recipe).allocate("1M").recipe.replace(name="hard") == recipe


def test_given_values_win_and_are_said(tmp_path: Path) -> None:
    recipe = Recipe(kl_coef=0.002, learning_rate_anchor=1e-6)
    plan = Planner(fits_of(**RUNS), recipe=recipe).allocate("1M")
    assert plan.recipe.kl_coef == 0.002
    assert plan.learning_rate == pytest.approx(recipe.learning_rate(plan.rollouts_per_batch))
    assert (plan.recipe.entropy_coef, plan.recipe.temperature) == (0.0, 1.0)
    unlike = note(plan, "recipe-differs-from-runs")
    assert unlike.severity == "warning"
    assert unlike.data["fields"]["kl_coef"] == {"runs": [0.0], "plan": 0.002, "source": "given"}
    assert set(unlike.data["fields"]) == {"kl_coef", "learning_rate"}
    assert row(plan, "kl_coef") == Setting("kl_coef", (0.0,), 0.002, "given", differs=True)
    # In the saved plan, its JSON, its text and the header of its script.
    again = Plan.load(plan.save(tmp_path / "plan.json"))
    assert again.settings == plan.settings
    saved = {one["name"]: one for one in json.loads(json.dumps(plan.to_dict(with_fits=False)))["settings"]}
    assert (saved["kl_coef"]["runs"], saved["kl_coef"]["plan"], saved["kl_coef"]["differs"]) == ([0.0], 0.002, True)
    text = plan.summary()
    assert "kl_coef: 0 in the runs, 0.002 in the plan" in text
    script = plan.launch_script("verl", model="m")
    header = script.split("# Notes:")[0]
    assert any(line.split() == ["#", "kl_coef", "0", "|", "0.002", "|", "0.002"] for line in header.splitlines())
    assert "temperature" not in header


def test_a_preset_chosen_by_name_chooses_kl_and_entropy_only() -> None:
    plan = Planner(fits_of(**RUNS), recipe=Recipe.preset("easy")).allocate("1M")
    assert (plan.recipe.kl_coef, plan.recipe.entropy_coef) == (1e-3, 1e-3)
    assert (plan.learning_rate, plan.recipe.max_response_tokens) == (5e-6, 4096)
    assert set(note(plan, "recipe-differs-from-runs").data["fields"]) == {"kl_coef", "entropy_coef"}
    same = Planner(fits_of(**RUNS), recipe=Recipe.preset("hard")).allocate("1M")
    assert "recipe-differs-from-runs" not in codes(same)


@pytest.mark.parametrize("method", ["paper", "surface"])
def test_b_p_is_one_that_was_run_also_in_hours(method: str) -> None:
    runs = sweep()
    fits = iso.fit(runs, method=method, draws=10)  # type: ignore[call-overload]
    slow = iso.Throughput(step_overhead_seconds=300, rollouts_per_second=60, gpus=8)
    planner = Planner(fits, throughput=slow)
    for budget in (iso.Budget(rollouts=1e6), iso.Budget(gpu_hours=200), iso.Budget(gpu_hours=4000)):
        assert planner.allocate(budget).problems_per_batch in (64, 128)
    small = iso.fit(sweep([(8, 4), (32, 4)]), method=method, draws=10)  # type: ignore[call-overload]
    assert Planner(small).allocate("100k").problems_per_batch == 4
    asked = Planner(small, recipe=Recipe(min_problems_per_batch=16)).allocate("100k")
    assert asked.problems_per_batch == 16
    assert "batch-not-observed" in codes(asked)


def test_what_a_plan_cannot_carry_is_a_warning() -> None:
    plan = Planner(fits_of(**RUNS, filter="dynamic", algorithm="rloo")).allocate("1M")
    missing = note(plan, "recipe-differs-from-runs")
    assert missing.severity == "warning"
    assert set(missing.data["fields"]) == {"filter", "algorithm"}
    assert Planner(fits_of(filter="zero-variance")).allocate("1M").recipe.zero_variance_filter_policy


def test_pooled_values_are_said_and_that_of_the_most_runs_is_planned() -> None:
    fits = fits_of(temperature=lambda n, bp: 0.6 if n == 8 else 0.8, pool=("temperature",))
    plan = Planner(fits).allocate("1M")
    assert plan.recipe.temperature == 0.8
    assert note(plan, "recipe-differs-from-runs").data["fields"]["temperature"]["runs"] == [0.8, 0.6]


def test_a_changed_plan_says_which_values_are_new() -> None:
    plan = Planner(fits_of(**RUNS)).allocate("1M")
    changed = change_plan(plan, {"kl_coef": 0.001, "learning_rate": 1e-6})
    assert set(note(changed, "recipe-differs-from-runs").data["fields"]) == {"kl_coef", "learning_rate"}
    assert row(changed, "temperature") == row(plan, "temperature")
    assert row(changed, "temperature").source == "runs"
    larger = change_plan(plan, {"group_size": 16})
    assert larger.learning_rate == 5e-6
    assert "recipe-differs-from-runs" not in codes(larger)


def test_another_model_or_evaluation_of_the_script_is_in_its_header() -> None:
    plan = Planner(fits_of(**RUNS, model="Qwen/Qwen2.5-7B", eval_temperature=1.0)).allocate("1M")
    assert "Recipe, where" not in plan.launch_script("verl")
    other = plan.launch_script("verl", model="meta/llama", evaluation=iso.Evaluation(temperature=0.2))
    lines = [line.split() for line in other.splitlines()]
    assert ["#", "model", "Qwen/Qwen2.5-7B", "|", "Qwen/Qwen2.5-7B", "|", "meta/llama"] in lines
    assert ["#", "eval_temperature", "1", "|", "1", "|", "0.2"] in lines


def test_published_laws_have_no_recipe_to_inherit() -> None:
    plan = Planner(iso.published_prior()).allocate("3M")
    assert row(plan, "kl_coef") == Setting("kl_coef", (), 1e-3, "assumed", differs=False)
    assert plan.recipe == Recipe()


def test_a_rate_that_nobody_gave_is_unknown_on_every_screen_and_marked_in_the_script(tmp_path: Path) -> None:
    unknown = Planner(fits_of(kl_coef=0.0)).allocate("1M")
    header = unknown.launch_script("verl", model="m").split("# Notes:")[0]
    asked = Planner(fits_of(kl_coef=0.0), recipe=Recipe.preset("easy", kl_coef=0.0)).allocate("1M")
    for text, sure in (
        (header, asked.launch_script("verl", model="m")),
        (unknown.summary().split("cost")[0], asked.summary()),
    ):
        assert "unknown" in text
        assert "temperature = 0.6" in text
        assert "kl_coef = " not in text
        assert "rate unknown" not in " ".join(sure.split())
    # Of a plan that was saved without its fits too, and a value that a person gives is no longer assumed.
    bare = Plan.from_dict(json.loads(json.dumps(unknown.to_dict(with_fits=False))))
    assert "rate unknown" in " ".join(bare.summary().split())
    for plan in (unknown, bare):
        changed = change_plan(plan, {"learning_rate": 5e-6, "temperature": 1.0})
        assert (row(changed, "learning_rate").plan, row(changed, "learning_rate").source) == (5e-6, "given")
        assert "(unknown" not in changed.launch_script("verl", model="m")
        assert "max_response_tokens" in changed.summary().split("cost")[0]


# Flags of the framework's own examples, examples/scripts/train_dapo_ray_hybrid_engine.sh and
# train_reinforce_baseline_llama_ray_agent_async.sh of OpenRLHF before 0.10.2.
DAPO = """--init_kl_coef 1e-3 --use_kl_loss --kl_estimator k3 --advantage_estimator group_norm --dynamic_filtering
--dynamic_filtering_reward_range 0 1 --pretrain OpenRLHF/Llama-3-8b-sft-mixture --train_batch_size 128
--rollout_batch_size 128 --n_samples_per_prompt 8 --max_epochs 1 --prompt_max_len 1024 --generate_max_len 1024
--actor_learning_rate 5e-7 --prompt_data OpenRLHF/prompt-collection-v0.1"""
ASYNC = """--pretrain OpenRLHF/Llama-3-8b-sft-mixture --train_batch_size 192 --rollout_batch_size 192
--n_samples_per_prompt 8 --max_epochs 1 --prompt_max_len 1024 --generate_max_len 1024
--advantage_estimator reinforce_baseline --actor_learning_rate 5e-7 --init_kl_coef 1e-3 --async_train"""
# Values of recipe/fully_async_policy of veRL, as its configuration is saved.
FULLY_ASYNC = {
    "data": {"train_batch_size": 0, "max_prompt_length": 2048, "max_response_length": 8192},
    "actor_rollout_ref": {
        "actor": {"optim": {"lr": 1e-6}, "use_kl_loss": False, "entropy_coeff": 0},
        "rollout": {"n": 16, "temperature": 1.0, "top_p": 1.0},
    },
    "algorithm": {"adv_estimator": "grpo"},
}


def said_by(path: Path) -> dict[str, Any]:
    """Context fields that a framework's configuration gives."""
    found = read_config(path)
    assert found is not None
    return {name: said.value for name, said in found.fields.items() if name in CONTEXT_FIELDS}


def openrlhf(folder: Path, flags: str) -> dict[str, Any]:
    path = folder / "launch.sh"
    path.write_text("python3 -m openrlhf.cli.train_ppo_ray " + flags.replace("\n", " \\\n") + "\n")
    return said_by(path)


def verl(folder: Path, **staleness: float) -> dict[str, Any]:
    path = folder / "config.json"
    path.write_text(json.dumps({**FULLY_ASYNC, "async_training": {"staleness_threshold": 0.0, **staleness}}))
    return said_by(path)


def prime_rl(folder: Path, **levels: int) -> dict[str, Any]:
    path = folder / "rl.json"
    path.write_text(json.dumps({"orchestrator": {"batch_size": 512, "group_size": 16, **levels}}))
    return said_by(path)


def test_the_configuration_of_a_framework_becomes_the_recipe(tmp_path: Path) -> None:
    context = openrlhf(tmp_path, DAPO)
    plan = Planner(fits_of(**context)).allocate("1M")
    assert plan.learning_rate == 5e-7
    assert (plan.recipe.kl_coef, plan.recipe.max_prompt_tokens, plan.recipe.max_response_tokens) == (1e-3, 1024, 1024)
    assert plan.recipe.updates_per_batch == 8
    assert set(note(plan, "recipe-differs-from-runs").data["fields"]) == {"filter"}
    trl = Path(__file__).parents[1] / "ingest" / "data" / "trl" / "args.json"
    saved = json.loads(trl.read_text())
    plan = Planner(fits_of(**said_by(trl))).allocate("1M")
    assert plan.learning_rate == saved["learning_rate"]
    assert plan.recipe.kl_coef == saved["beta"]
    assert plan.recipe.temperature == saved["temperature"]


def test_asynchronous_runs_warn_or_are_refused_by_their_staleness(tmp_path: Path) -> None:
    one_behind = fits_of(**openrlhf(tmp_path, ASYNC))
    warned = note(Planner(one_behind).allocate("1M"), "off-policy-runs")
    assert (warned.severity, warned.data["off_policy"]) == ("warning", ["async"])
    synchronous = Planner(fits_of(**verl(tmp_path, staleness_threshold=0.0))).allocate("1M")
    assert "off-policy-runs" not in codes(synchronous)
    half = Planner(fits_of(**verl(tmp_path, staleness_threshold=0.5))).allocate("1M")
    assert "off-policy-runs" in codes(half)
    old = fits_of(**verl(tmp_path, staleness_threshold=4))
    with pytest.raises(PlanError, match="staleness 4"):
        Planner(old).allocate("1M")
    accepted = Planner(old, allow_off_policy=True).allocate("1M")
    assert "off-policy-runs" in codes(accepted)
    assert "off-policy-runs" not in codes(Planner(fits_of(**prime_rl(tmp_path, max_async_level=0))).allocate("1M"))
    assert "off-policy-runs" in codes(Planner(fits_of(**prime_rl(tmp_path, max_async_level=1))).allocate("1M"))
    with pytest.raises(PlanError, match="staleness 2"):
        Planner(fits_of(**prime_rl(tmp_path, max_async_level=2))).allocate("1M")
