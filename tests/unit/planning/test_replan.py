"""Options for the rest of a run's budget: onset, checkpoint, sunk cost, predicted rewards, commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk import RunSet
from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint, find_checkpoints
from isocompute_sdk.planning import Planner, Replan
from tests.unit.sweeps import recorded

STEPS = np.arange(0, 1001, 20.0)
BATCH = 16 * 32


def rewards(*, fall: bool, base: float = 0.45, seed: int = 0) -> np.ndarray:
    """A rise by .2 that falls by .12 after step 600, or does not."""
    clean = base + 0.2 * (1.0 - np.exp(-STEPS / 150.0)) - (np.maximum(STEPS - 600, 0) / 400 * 0.12 if fall else 0.0)
    return clean + np.random.default_rng(seed).normal(0.0, 0.005, len(STEPS))


def run_of(table: dict[str, Any], **context: Any) -> RunSet:
    known = {"group_size": 16, "problems_per_batch": 32, "learning_rate": 1e-6, "kl_coef": 0.0, "entropy_coef": 0.0}
    return RunSet.from_columns(table, run_id="mine", **known | context)


def runs_of(*, fall: bool = True, base: float = 0.45, **context: Any) -> RunSet:
    return run_of({"step": STEPS, "avg@4": rewards(fall=fall, base=base)}, **context)


def saved(*steps: int, loadable: bool = True) -> list[SavedCheckpoint]:
    places = [(step, Path(f"/runs/mine/checkpoint-{step}")) for step in steps]
    return [SavedCheckpoint(step, path, path if loadable else None) for step, path in places]


def planner(runs: RunSet) -> Planner:
    return Planner(iso.fit(runs, draws=30))


@pytest.fixture(scope="module")
def of_fallen() -> Planner:
    """The planner of `runs_of()`."""
    return planner(runs_of())


@pytest.fixture(scope="module")
def fallen(of_fallen: Planner) -> Replan:
    return of_fallen.replan(runs_of(), "1M", checkpoints=saved(200, 400, 600, 800, 1000))


def test_the_rest_of_a_run_without_groups_is_refused_as_what_it_is() -> None:
    alone = run_of({"step": STEPS, "avg@4": rewards(fall=False)}, group_size=1)
    with pytest.raises(iso.PlanError, match="n = 1"):
        planner(alone).replan(alone, "1M")


def test_trouble_checkpoint_and_sunk_cost_follow_from_the_log(fallen: Replan) -> None:
    assert fallen.trouble == ("decayed-run",)
    assert fallen.onset is not None
    assert fallen.onset.step is not None
    assert 440 <= fallen.onset.step <= 680
    assert fallen.checkpoint.path == "/runs/mine/checkpoint-600"
    assert fallen.spent == 1000 * BATCH
    assert fallen.salvageable == 600 * BATCH
    assert fallen.sunk == 400 * BATCH


@pytest.mark.parametrize(("budget", "basis"), [("100k", "seen-in-your-data"), ("1M", "beyond-your-data")])
def test_going_on_further_than_any_run_is_beyond_the_data(budget: str, basis: str) -> None:
    short = STEPS[:26]
    table = {
        "run_id": ["mine"] * len(short) + ["longer"] * len(STEPS),
        "step": [*short, *STEPS],
        "avg@4": [*rewards(fall=False)[:26], *rewards(fall=False, seed=1)],
    }
    runs = RunSet.from_columns(table, group_size=16, problems_per_batch=32)
    assert planner(runs).replan(runs, budget, run_id="mine").option("go-on").basis == basis


def test_every_option_has_a_reward_in_its_interval_and_a_basis(fallen: Replan) -> None:
    bases = {one.name: one.basis for one in fallen.options}
    assert bases == {
        "go-on": "beyond-your-data",
        "stop": "seen-in-your-data",
        "roll-back-terms-on": "measured-in-paper",
        "halve-learning-rate": "guess",
    }
    rewards_in_order = [one.reward for one in fallen.options]
    assert rewards_in_order == sorted(rewards_in_order, reverse=True)
    for one in fallen.options:
        assert one.low <= one.reward <= one.high
        assert one.rollouts == one.update_steps * one.group_size * one.problems_per_batch <= 1e6
    assert fallen.option("stop").update_steps == 0


def test_after_a_change_of_recipe_the_old_curve_is_said_to_be_a_prior(fallen: Replan) -> None:
    (note,) = [note for note in fallen.notes if "options" in note.data]
    assert set(note.data["options"]) == {"roll-back-terms-on", "halve-learning-rate"}


def test_a_falling_run_is_not_gone_on_with(fallen: Replan) -> None:
    assert fallen.follow != "go-on"
    assert abs(fallen.option("stop").reward - 0.646) < 0.01


def test_terms_go_on_for_easy_sets_and_off_for_hard_ones(fallen: Replan) -> None:
    assert fallen.option("roll-back-terms-on").changes == {"kl_coef": 0.001, "entropy_coef": 0.001}
    hard = runs_of(base=0.03, kl_coef=0.001, entropy_coef=0.001)
    found = planner(hard).replan(hard, "1M", checkpoints=saved(600))
    assert found.option("roll-back-terms-off").changes == {"kl_coef": 0.0, "entropy_coef": 0.0}
    off_already = runs_of(base=0.03)
    names = {one.name for one in planner(off_already).replan(off_already, "1M", checkpoints=saved(600)).options}
    assert not names & {"roll-back-terms-on", "roll-back-terms-off"}


def test_entropy_that_grows_on_a_hard_set_is_answered_with_the_terms() -> None:
    reward = rewards(fall=False, base=0.03) - np.where(STEPS > 400, (STEPS - 400) / 600 * 0.19, 0.0)
    entropy = np.where(STEPS < 400, 0.8, 0.8 + (STEPS - 400) / 200)
    table = {"step": STEPS, "avg@4": np.clip(reward, 0.0, 1.0), "entropy": entropy}
    runs = run_of(table, kl_coef=0.001, entropy_coef=0.1)
    found = planner(runs).replan(runs, "1M", checkpoints=saved(200, 400, 600, 800, 1000))
    assert "entropy-explosion" in found.trouble
    assert found.follow == "roll-back-terms-off"


def test_a_sudden_collapse_keeps_the_reward_before_it_and_halves_the_learning_rate() -> None:
    steps = np.arange(0, 201, 8.0)
    reward = np.where(steps < 20, 0.45, 0.45 * np.exp(-(steps - 16) / 20.0))
    reward = np.clip(reward + np.random.default_rng(0).normal(0.0, 0.005, len(steps)), 0.0, 1.0)
    runs = run_of({"step": steps, "avg@4": reward}, learning_rate=1e-4)
    found = planner(runs).replan(runs, "300k", checkpoints=saved(16, 80, 160))
    assert "collapsed-run" in found.trouble
    assert found.checkpoint.path == "/runs/mine/checkpoint-16"
    assert found.checkpoint.reward == pytest.approx(0.45, abs=0.02)
    assert found.follow == "halve-learning-rate"
    assert found.option(found.follow).changes == {"learning_rate": 5e-5}
    # What to try by the finding is the same.
    assert "half the learning rate" in found.summary()


@pytest.mark.parametrize(("scale", "terms"), [(1.0, True), (100.0, True), (-1.0, False)])
def test_terms_are_for_rewards_that_are_a_share_of_problems_solved(scale: float, *, terms: bool) -> None:
    runs = run_of({"step": STEPS, "avg@4": scale * rewards(fall=True) + (scale < 0)})
    fits = iso.fit(runs, bounds=(-1.0, 1.0) if scale < 0 else (0.0, scale), draws=30)
    options = Planner(fits).replan(runs, "1M", checkpoints=saved(600)).options
    assert ("roll-back-terms-on" in {one.name for one in options}) == terms


@pytest.mark.parametrize("checkpoints", [(), (200, 300, 400)])
def test_what_the_forecast_says_of_a_run_is_followed(checkpoints: tuple[int, ...]) -> None:
    table = {"step": STEPS, "avg@4": rewards(fall=False), "kl": np.where(STEPS < 500, 0.0005, 0.05)}
    runs = run_of(table)
    found = planner(runs).replan(runs, "1M", checkpoints=saved(*checkpoints))
    assert found.trouble == ("kl-drift",)
    assert found.forecast.card.action == "change-something"
    assert found.option(found.follow).changes
    if not checkpoints:
        with pytest.raises(iso.PlanError, match="checkpoint"):
            found.commands()


@pytest.mark.parametrize("best", [4, 16])
def test_a_new_run_is_followed_where_the_plan_for_what_is_left_gains_more(best: int) -> None:
    rng, columns = np.random.default_rng(0), dict[str, list[Any]](run_id=[], group_size=[], step=[])
    columns["avg@4"] = []
    for n in (4, 8, 16):
        steps = STEPS * 4 / n * (0.4 if n == 16 else 0.3)
        top = 0.5 if n == best else 0.2
        reached = 0.3 + top * (1.0 - np.exp(-steps * n / 1000)) + rng.normal(0, 0.004, len(steps))
        columns["run_id"] += [f"n{n}"] * len(steps)
        columns["group_size"] += [n] * len(steps)
        columns["step"] += [*steps]
        columns["avg@4"] += [*reached]
    runs = RunSet.from_columns(columns, problems_per_batch=32)
    fits = Planner(iso.fit(runs, draws=30))
    found = fits.replan(runs, "100k", run_id="n16")
    plan = fits.allocate("100k", slots=0)
    new = found.option("new-run")
    assert (new.group_size, new.update_steps) == (plan.group_size, plan.update_steps)
    assert new.reward == pytest.approx(plan.predicted_reward)
    assert found.follow == ("go-on" if best == 16 else "new-run")
    if best == 16:
        # Where something else is expected to end a little higher, the line says why it is not taken.
        go_on, worth = found.option("go-on"), f"{found.forecast.flat.worth:g} more"
        lines = dict[float, str]()
        for more in (-0.004, 0.004):
            beside = replace(new, low=0.0, high=1.0, reward=go_on.reward + more)
            (lines[more],) = (
                line for line in replace(found, options=(beside, go_on)).summary().splitlines() if line.startswith("->")
            )
        assert [worth in line for line in lines.values()] == [False, True]
    assert found.commands("new-run") == ()
    assert "new-run" not in {one.name for one in fits.replan(runs, "10M", run_id="n16").options}
    # Its n in trouble, a new run would be in the same.
    columns["kl"] = [
        0.05 if n == 4 and at > 150 else 0.0005 for n, at in zip(columns["group_size"], columns["step"], strict=True)
    ]
    sick = RunSet.from_columns(columns, problems_per_batch=32)
    found = Planner(iso.fit(sick, draws=30)).replan(sick, "100k", run_id="n16")
    assert ("new-run" in {one.name for one in found.options}) == (best == 16)


def test_a_run_that_would_end_below_another_does_not_go_on() -> None:
    short = STEPS[STEPS <= 400]
    low = 0.3 + 0.2 * (1.0 - np.exp(-short / 400)) + np.random.default_rng(1).normal(0.0, 0.004, len(short))
    table = {
        "run_id": ["mine"] * len(short) + ["other"] * len(STEPS),
        "step": [*short, *STEPS],
        "avg@4": [*low, *rewards(fall=False)],
    }
    runs = RunSet.from_columns(table, group_size=16, problems_per_batch=32)
    fits = planner(runs)
    found = fits.replan(runs, "300k", run_id="mine")
    assert found.best is not None
    assert found.best.run_id == "other"
    assert found.option("go-on").reward < found.best.reward
    assert found.follow == "stop"
    assert re.search(r"other: .*no option", found.summary())
    assert found.forecast.card.action == "stop-here"
    assert "other" in found.forecast.card.reason
    assert fits.replan(runs, "300k", run_id="other").best is None


@pytest.mark.parametrize(("sweep", "share"), [("add32-easy", 1.0), ("rev31-hard", 1.0), ("qwen2.5-7b-easy-d500", 0.7)])
def test_the_forecast_and_the_arrow_of_as_much_again_agree_and_going_on_gains_over_the_best_so_far(
    sweep: str, share: float
) -> None:
    runs = recorded(sweep)
    runs = runs.filter(pl.col("rollouts") <= share * runs.to_polars()["rollouts"].max())
    fits = iso.fit(runs, draws=60)
    assert isinstance(fits, iso.Fits)
    for run in runs.run_ids:
        found = iso.forecast(fits, run)
        follow = Planner(fits).replan(runs, found.rollouts, run_id=run).follow
        assert (found.card.action, follow) not in {("go-on", "stop"), ("stop-here", "go-on")}
        assert found.card.keep.reward is not None
        if found.card.action == "go-on":
            assert round(found.at(2).best, 3) > round(found.card.keep.reward, 3)


@pytest.mark.parametrize("kept", [(), (300, 400, 500)])
def test_trouble_does_not_begin_before_the_checkpoint_that_is_kept(kept: tuple[int, ...]) -> None:
    steps = np.arange(0, 601, 20.0)
    sick = np.maximum(steps - 400, 0)
    reward = 0.42 + 0.22 * (1 - np.exp(-np.minimum(steps, 400) / 180)) - 0.10 * (1 - np.exp(-sick / 60))
    table = {"step": steps, "avg@4": reward + np.random.default_rng(3).normal(0.0, 0.005, len(steps))}
    runs = RunSet.from_columns(table, run_id="mine", group_size=16, problems_per_batch=64)
    found = planner(runs).replan(runs, "600k", checkpoints=saved(*kept))
    assert found.onset is not None
    assert found.onset.step is not None
    assert abs(found.onset.step - 400) <= 20
    assert found.checkpoint.rollouts <= found.onset.rollouts
    assert found.checkpoint.path == ("/runs/mine/checkpoint-400" if kept else None)


def test_the_reward_kept_of_a_run_that_still_rises_is_that_of_its_end() -> None:
    steps = np.array([0, 10, 18, 40, 74, 158, 293, 541])
    reward = np.array([0.427, 0.519, 0.556, 0.614, 0.691, 0.758, 0.818, 0.849])
    runs = RunSet.from_columns({"step": steps, "avg@4": reward}, run_id="mine", group_size=32, problems_per_batch=16)
    found = iso.forecast(runs)
    assert found.card.keep.reward == pytest.approx(0.849, abs=0.01)


def test_a_healthy_rising_run_goes_on() -> None:
    runs = runs_of(fall=False).filter(step=[float(step) for step in STEPS[STEPS <= 160]])
    found = planner(runs).replan(runs, 200_000, checkpoints=saved(100, 140))
    assert found.onset is None
    assert found.follow == "go-on"
    # Where the run has ended, another one goes on from its checkpoint.
    launch, start = found.commands()
    assert "/runs/mine/checkpoint-140" in launch
    assert start == "bash go-on.sh"
    assert planner(runs).replan(runs, 200_000).commands() == ()


def test_a_flat_run_stops_unless_something_is_expected_to_gain() -> None:
    runs = runs_of(fall=False)
    found = planner(runs).replan(runs, 100_000, checkpoints=saved(1000))
    assert abs(found.option("go-on").reward - found.option("stop").reward) < 0.01
    assert found.follow == "stop"


def test_without_a_checkpoint_nothing_is_salvageable_and_nothing_can_be_launched(of_fallen: Planner) -> None:
    found = of_fallen.replan(runs_of(), "1M")
    assert found.checkpoint.path is None
    assert found.salvageable == 0
    assert "no-healthy-checkpoint" in {note.code for note in found.notes}
    # What is offered needs no checkpoint, and what is kept is the model as it has fallen.
    assert {one.name for one in found.options} == {"go-on", "stop"}
    kept = of_fallen.replan(runs_of(), "1M", checkpoints=saved(200, 400, 600)).option("stop")
    assert found.option("stop").reward < kept.reward - 0.02
    assert found.option("stop").start is None
    with pytest.raises(iso.PlanError, match="checkpoint"):
        found.commands("halve-learning-rate")


def test_a_checkpoint_that_does_not_load_is_noted(of_fallen: Planner) -> None:
    found = of_fallen.replan(runs_of(), "1M", checkpoints=saved(400, 600, loadable=False))
    assert found.loadable is None
    assert "does not load" in found.summary()
    with pytest.raises(iso.PlanError, match="checkpoint-600"):
        found.commands("halve-learning-rate")


def test_commands_name_checkpoint_and_changes(fallen: Replan) -> None:
    launch, start = fallen.commands("halve-learning-rate", "my plan.json", "verl")
    words = shlex.split(launch)
    assert words[:3] == ["isocompute", "launch", "my plan.json"]
    assert words[words.index("--model") + 1] == "/runs/mine/checkpoint-600"
    assert words[words.index("--backend") + 1] == "verl"
    assert words[words.index("--change") + 1] == "learning_rate=5e-07"
    assert start == f"bash {words[words.index('--script') + 1]}"
    with pytest.raises(iso.PlanError, match="pray"):
        fallen.commands("pray")


def test_a_replan_survives_saving_and_keeps_its_plan(fallen: Replan, tmp_path: Path) -> None:
    again = Replan.load(fallen.save(tmp_path / "replan.json"))
    assert again.to_dict() == fallen.to_dict()
    assert again.plan is not None
    assert (again.plan.group_size, again.plan.problems_per_batch) == (16, 32)
    assert again.plan.rollouts <= 1_000_000
    assert again.plan.predicted_reward is None
    assert again.plan.recipe.kl_coef == 0.0


def test_too_little_left_and_far_too_much_left_are_told(of_fallen: Planner) -> None:
    with pytest.raises(iso.PlanError, match="less than one update"):
        of_fallen.replan(runs_of(), 100)
    with pytest.raises(iso.PlanError, match="1,024 rollouts"):
        of_fallen.replan(runs_of(problems_per_batch=64), 1000)
    far = of_fallen.replan(runs_of(), "100M", checkpoints=saved(600))
    assert "forecast-uncertain" in {note.code for note in far.notes}
    near = of_fallen.replan(runs_of(), "300k", checkpoints=saved(600))
    assert [any("16x" in one.title for one in found.options) for found in (far, near)] == [True, False]


def test_only_folders_with_weights_are_checkpoints(tmp_path: Path) -> None:
    for name, files in {
        "global_step_40/actor": ("model_world_size_1_rank_0.pt",),
        "checkpoint-80": ("config.json", "model.safetensors"),
        "global_step120_hf": ("config.json", "pytorch_model.bin"),
        "checkpoint-160": ("trainer_state.json", "config.json", "training_args.bin", "optimizer.pt"),
        "iter_0000200": ("weights.distcp",),
        "notes-240": ("model.safetensors",),
    }.items():
        folder = tmp_path / "run" / name
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).write_bytes(b"x")
    (tmp_path / "run" / "log.csv").write_text("")
    for given in (tmp_path, tmp_path / "run" / "log.csv"):
        found = find_checkpoints([given])
        assert [one.step for one in found] == [40, 80, 120, 200]
        assert [one.loadable is not None for one in found] == [False, True, True, False]
        assert found[0].path == tmp_path / "run" / "global_step_40"


def test_beside_a_file_checkpoints_of_other_runs_do_not_count(tmp_path: Path) -> None:
    for place in ("checkpoint-10", "checkpoints/step_20", "other/checkpoint-30"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "model.safetensors").write_bytes(b"x")
    (tmp_path / "log.csv").write_text("")
    assert [one.step for one in find_checkpoints([tmp_path / "log.csv"])] == [10, 20]
    assert [one.step for one in find_checkpoints([tmp_path])] == [10, 20, 30]
