"""What the page says, without HTML."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from isocompute_sdk import api
from isocompute_sdk.auditing import audit
from isocompute_sdk.campaigns.campaign import CAMPAIGN, CampaignSettings
from isocompute_sdk.campaigns.campaign import COMPARISON as COMPARISON_FILE
from isocompute_sdk.campaigns.comparison import COMPARISON, Comparison
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.health.traces import REWARD
from isocompute_sdk.health.traces import gather as traces_of
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import short
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.planning.changes import change_plan
from isocompute_sdk.planning.pricing import bare
from isocompute_sdk.records import RunSet
from isocompute_sdk.reporting import wording
from isocompute_sdk.reporting.material import Asked, Material, Source, gather
from isocompute_sdk.reporting.page import (
    Answer,
    Block,
    Fact,
    Grid,
    Items,
    Missing,
    Notes,
    Page,
    Paragraph,
    Picture,
    Script,
    Table,
)
from isocompute_sdk.reporting.report import build
from isocompute_sdk.reporting.sections import budgets
from isocompute_sdk.reporting.sections.closing import launch_script
from isocompute_sdk.reporting.sections.first_screen import answer
from isocompute_sdk.reporting.sections.runs import runs as runs_section
from isocompute_sdk.reporting.wording import STEP_LAWS
from isocompute_sdk.specs import Budget, Data, Hardware, Study, Sweep, Throughput
from tests.parameters import few

ORDER = ["why", "budget", "sure", "runs", "launch", "provenance"]
SPEED = Throughput(step_overhead_seconds=20, rollouts_per_second=60, gpus=8, usd_per_gpu_hour=2.5)


QUICK = {"draws": 24}


def pictures(page: Page) -> tuple[Picture, ...]:
    """Every picture on the page, in order."""
    grids = [block.pictures if isinstance(block, Grid) else (block,) for block in page.blocks]
    return tuple(one for grid in grids for one in grid if isinstance(one, Picture))


def blocks(page: Page, name: str) -> tuple[Block, ...]:
    return next(section for section in page.sections if section.name == name).blocks


def fact(found: Answer, label: str) -> Fact:
    """The first fact of the answer whose label begins like this."""
    return next(one for one in found.facts if one.label.startswith(label))


def page_of(source: Source, budget: Budget | None = None, compare: str | None = None, **planner: object) -> Page:
    return build(gather(source, Asked(budget=budget, compare=compare, planner=planner, fit=QUICK)))


def test_an_empty_section_says_what_is_missing_and_which_command_gives_it(prior_page: Page) -> None:
    page = prior_page
    empty = [section for section in page.sections if section.missing]
    assert {"runs", "launch"} <= {section.name for section in empty}
    for section in empty:
        (block,) = section.blocks
        assert isinstance(block, Missing)
        assert block.text
        assert block.command.startswith("isocompute ")


def test_a_page_without_runs_says_how_wide_the_best_n_is_and_keeps_the_budget_in_its_commands(prior_page: Page) -> None:
    smallest, largest = map(int, fact(prior_page.answer, "Best n").value.split(" to "))
    assert smallest < largest
    (table,) = [block for block in blocks(prior_page, "why") if isinstance(block, Table)]
    assert all(any(column) for column in zip(*table.rows, strict=True))
    asked = [block.command for block in prior_page.blocks if isinstance(block, Missing) and "--budget" in block.command]
    assert asked
    assert all("--budget 3000000" in command for command in asked)


def test_the_slider_holds_the_plans_of_at_least_sixty_budgets(material: Material, page: Page) -> None:
    slider = page.slider()
    ladder, planner = material.ladder, material.planner
    assert slider is not None
    assert planner is not None
    assert len(slider.positions) >= 60
    amounts = [plan.budget.amount for plan in ladder]
    assert amounts == sorted(set(amounts))
    assert amounts == [float(f"{amount:.3g}") for amount in amounts]
    assert ladder[slider.start] is material.plan
    for i in (0, 17, 44, len(amounts) - 1):
        plan = planner.allocate(amounts[i])
        assert slider.positions[i][1] == budgets.numbers(plan)


def test_the_slider_names_a_better_n_that_the_plan_may_not_take(material: Material) -> None:
    plan = material.plan
    assert plan is not None
    larger = replace(plan.alternatives[0], kind="beyond-grid", group_size=4096, expected_loss=-0.03)
    shown = dict(zip(budgets.LABELS, budgets.numbers(replace(plan, alternatives=(larger,))), strict=True))
    assert shown["About the best n"] == "4096 (+0.030)"


def test_the_first_screen_says_what_it_costs_gains_and_may_lose(material: Material, page: Page) -> None:
    plan, planner, found = material.plan, material.planner, page.answer
    assert plan is not None
    assert planner is not None
    assert plan.predicted_reward is not None
    assert plan.odds is not None
    assert plan.gain is not None
    for text in (f"n = {plan.group_size}", f"{plan.update_steps:,}", f"B_p = {plan.problems_per_batch}"):
        assert text in found.sentence
    assert fact(found, "Cost").value == f"{plan.cost:,.0f} rollouts"
    assert "evaluations" in fact(found, "Cost").detail
    assert bare(plan.cost, "rollouts") not in fact(found, "Cost").detail
    assert fact(found, "Expected").value == f"{plan.predicted_reward:.3f}"
    lost = fact(found, "Lost")
    assert float(lost.value) == pytest.approx(plan.odds.expected_loss / (1 - plan.odds.probability_best), abs=1e-3)
    assert f"{plan.odds.expected_loss:.3f}" in lost.detail
    # Rewards and their difference agree as they are shown.
    best = fact(found, "Gain over the best run so far")
    assert float(best.value) == pytest.approx(round(plan.predicted_reward, 3) - round(plan.gain.best.reward, 3))
    assert str(plan.gain.best) in best.detail
    own = f"n={plan.group_size},bp={plan.problems_per_batch},m={plan.update_steps}"
    today = planner.compare("n=8,bp=32", 3e6, reference=own)
    assert f"{today.configuration_reward.mean:.3f}" in fact(found, "Gain over today's n = 8, B_p = 32").detail
    assert today.probability is not None
    assert fact(found, "Probability of beating today's").value == wording.chance(today.probability)
    # With M it is what is run today, at its own cost.
    as_run = fact(page_of(planner.fits, plan.budget, "n=8,bp=32,m=100").answer, "Gain over today's").detail
    assert "25,600 rollouts" in as_run
    assert "same budget" not in as_run
    assert plan.gain.probability is not None
    assert fact(found, "Probability of beating that run").value == wording.chance(plan.gain.probability)


def test_beyond_twice_the_runs_the_page_asks_for_a_check_on_the_way(fits: Fits) -> None:
    reach = fits.largest_compute or 0
    plan = Planner(fits).allocate(1.5 * reach)
    assert plan.approval is not None
    assert plan.approval.kind in ("approve", "do-not")
    plan = Planner(fits).allocate(8 * reach, problems_per_batch=32, spend="all", slots=0)
    found = plan.approval
    assert found is not None
    assert found.kind in ("check", "part")
    assert found.step is not None
    assert 0 < found.step < plan.update_steps
    assert f"{found.step:,}" in answer(gather(plan, Asked())).label


def test_a_plan_approved_in_part_has_the_price_of_that_part_beside_the_whole(fits: Fits) -> None:
    slow = SPEED.replace(rollouts_per_second=2)
    plan = Planner(fits, throughput=slow).allocate(12 * (fits.largest_compute or 0), problems_per_batch=32, slots=0)
    assert plan.costs["wall_hours"] > 48
    assert 0 < plan.approved_steps < plan.update_steps
    part = change_plan(plan, {"update_steps": plan.approved_steps})
    assert plan.approved_costs == pytest.approx(part.costs)
    found = answer(gather(plan, Asked()))
    assert f"step {plan.approved_steps:,} of M = {plan.update_steps:,}" in found.sentence
    for label, unit in (("Cost", "rollouts"), ("Time", "wall_hours"), ("Dollars", "usd")):
        one = fact(found, label)
        assert one.value == wording.amount(part.costs[unit], unit)
        assert one.detail.count(bare(plan.costs[unit], unit)) == 1
    assert plan.approval is not None
    assert plan.gain is not None
    assert fact(found, "Expected").value == wording.reward(plan.approval.expected)
    assert fact(found, "Gain").value == wording.difference(plan.approval.expected or 0.0, plan.gain.best.reward)
    # So has its gain over what is run today, at the cost of the part.
    today = fact(answer(gather(plan, Asked(compare="n=8,bp=32"))), "Gain over today's")
    theirs = fits.predict(plan.approved_costs["rollouts"] // 256 * 256, 8, 32).mean
    assert today.value == wording.difference(plan.approval.expected or 0.0, float(theirs))
    whole = Planner(fits).compare("n=8,bp=32", plan=plan).configuration_reward.mean
    assert wording.difference(plan.predicted_reward or 0.0, whole) in today.detail
    # A check on the way is as far along.
    checked = answer(gather(replace(plan, approval=replace(plan.approval, kind="check")), Asked()))
    for label, unit in (("Cost", "rollouts"), ("Time", "wall_hours"), ("Dollars", "usd")):
        assert wording.amount(part.costs[unit], unit) in fact(checked, label).detail


def test_a_page_says_what_it_compares_with(material: Material) -> None:
    plan = material.plan
    assert plan is not None
    assert plan.gain is not None
    for n in (plan.group_size, 2 * plan.group_size):
        best = replace(plan.gain.best, group_size=n, problems_per_batch=plan.problems_per_batch)
        asked = replace(material.asked, compare=None)
        found = answer(replace(material, asked=asked, plan=replace(plan, gain=replace(plan.gain, best=best))))
        texts = [block.text for block in found.more if isinstance(block, Paragraph | Missing)]
        assert any("compares with the best run so far" in text for text in texts)
        assert any("--against n=N,bp=BP" in block.command for block in found.more if isinstance(block, Missing))


def test_the_page_of_one_n_compares_it_with_nothing(make_runs: Callable[..., RunSet]) -> None:
    found = page_of(make_runs(levels=[(16, 32)]), Budget(rollouts=1e6))
    assert "size-budget" not in {one.name for one in pictures(found)}
    slider = found.slider()
    assert slider is not None
    assert all(any(values[i] for _, values in slider.positions) for i in range(len(slider.labels)))


def test_the_page_says_nothing_about_laws_that_its_plan_does_not_use(fits: Fits) -> None:
    notes = tuple(Note("law-at-bound", "warning", "at a bound", {"law": name}) for name in ("group_size", *STEP_LAWS))
    plan = replace(Planner(fits).allocate("3M"), notes=notes)
    assert not [block for block in build(gather(plan, Asked())).blocks if isinstance(block, Notes)]


def test_a_borrowed_n_is_not_approved(prior_page: Page) -> None:
    assert (prior_page.answer.tone, prior_page.answer.label) == ("stop", "Do not approve yet")


def test_a_run_worth_its_cost_comes_before_approval(fits: Fits) -> None:
    plans = [Planner(fits).allocate(budget) for budget in ("6M", "12M")]
    assert [plan.next_runs is not None and len(plan.next_runs.runs) for plan in plans] == [0, 1]
    assert [plan.approval is not None and plan.approval.kind for plan in plans] == ["approve", "do-not"]


def test_the_page_names_collapsed_runs_an_n_of_another_batch_and_the_scale_above_which_nothing_is_validated(
    make_runs: Callable[..., RunSet],
) -> None:
    def collapsing(n: int, bp: int, compute: float) -> float:
        return 0.3 + 0.2 * math.log10(compute / 2e4) if compute < 6e5 else 0.02

    runs = make_runs().concat(make_runs(collapsing, [(16, 64)]))
    (rests,) = [block for block in page_of(runs, Budget(rollouts=4e7)).answer.more if isinstance(block, Items)]
    said = " ".join(rests.texts)
    assert "collapsed" in said
    assert "n16" in said.replace("-", "")
    assert "No run went beyond" in said
    assert any("n = 16 " in text and "B_p = 32" in text for text in rests.texts)


def test_hours_and_money_are_shown_and_a_budget_that_the_deadline_cuts_says_so(fits: Fits) -> None:
    free = Planner(fits, throughput=SPEED).allocate("$2000", spend="all")
    assert free.wall_hours is not None
    page = page_of(fits, Budget(usd=2000, deadline_hours=1.3 * free.wall_hours), throughput=SPEED)
    assert fact(page.answer, "Cost").value.startswith("$")
    assert fact(page.answer, "Time").value.endswith(("hours", "days"))
    assert "deadline" in fact(page.answer, "Time").detail
    slider = page.slider()
    assert slider is not None
    assert slider.positions[0][0].startswith("$")
    section = next(section for section in page.sections if section.name == "budget")
    (table,) = (one for one in section.blocks if isinstance(one, Table))
    rows = [row[0] for row in table.rows if row[0].startswith("$")]
    assert ["deadline" in row for row in rows] == [False, False, False, True, True]


@pytest.mark.parametrize("options", few([{"update_steps": 40}, {}, {"spend": "all"}, {"mode": "conservative"}], 1))
def test_the_page_of_a_saved_plan_plans_other_budgets_with_its_options(
    options: dict[str, Any], fits: Fits, tmp_path: Path
) -> None:
    planner = Planner(fits, throughput=SPEED)
    plan = planner.allocate("200 gpu_hours", **options)
    found = gather(plan.save(tmp_path / "plan.json"), Asked())
    assert found.planned_again
    assert (found.options, found.plan) == (options, plan)
    for one in (found.ladder[0], found.ladder[-1]):
        assert budgets.numbers(one) == budgets.numbers(planner.allocate(one.budget, slots=0, **options))


def test_the_page_of_a_saved_plan_says_what_it_holds_of_its_runs(fits: Fits, tmp_path: Path) -> None:
    file = Planner(fits).allocate(400_000, slots=0).save(tmp_path / "plan.json")
    (missing,) = runs_section(gather(file, Asked())).blocks
    assert isinstance(missing, Missing)
    assert "only the rewards of its runs" in missing.text


def test_commands_from_a_saved_plan_name_its_runs_as_they_are_named_from_this_folder(
    fits: Fits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = "'my runs.csv' 'logs/*.csv' --set n=8"
    for file in (tmp_path / "my runs.csv", tmp_path / "logs/a.csv", tmp_path / "page/here.csv"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    named = replace(fits, read_from=f"{read} page/here.csv")
    sources = named.save(tmp_path / "fits.json"), Planner(named).allocate(400_000, slots=0).save(tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)
    assert gather("plan.json", Asked()).behind == named.read_from
    monkeypatch.chdir(tmp_path / "page")
    for file in sources:
        found = gather(f"../{file.name}", Asked())
        assert shlex.split(found.behind) == ["../my runs.csv", "../logs/*.csv", "--set", "n=8", "here.csv"]
    Planner(replace(fits, read_from="here.csv")).allocate(400_000, slots=0).save(tmp_path / "plan.json")
    assert gather("../plan.json", Asked()).behind == "here.csv"


def test_the_command_for_a_smaller_budget_of_a_saved_plan_asks_the_same_question(fits: Fits, tmp_path: Path) -> None:
    planner = Planner(fits, throughput=SPEED)
    plan = planner.allocate(Budget(gpu_hours=100, deadline_hours=9, spent={"pilot": 2}), slots=0)
    assert plan.approval is not None
    assert plan.approval.kind == "do-not"
    offered = replace(plan, approval=replace(plan.approval, smaller=60.0))
    file = offered.save(tmp_path / "plan.json")
    *words, option, amount, _, spent = shlex.split(answer(gather(file, Asked())).command)
    assert [*words, option, spent] == ["isocompute", "report", str(file), "--budget", "pilot=2"]
    again = gather(file, Asked(budget=Budget.parse(amount))).plan
    assert again is not None
    same = planner.allocate(Budget(gpu_hours=60, deadline_hours=9, spent={"pilot": 2}), slots=0)
    assert (again.budget, again.update_steps, again.costs) == (same.budget, same.update_steps, same.costs)


def test_commands_about_the_runs_of_a_saved_plan_keep_its_limits_and_the_time_of_a_step(fits: Fits) -> None:
    speed = SPEED.replace(step_overhead_seconds=10, latency_floor_seconds=7)
    planner = Planner(fits, throughput=speed, hardware=Hardware(max_rollouts_per_batch=512))
    plan = planner.allocate("200 gpu_hours", slots=0, mode="conservative", powers_of_two=False, n_problems=500)
    command = gather(plan, Asked()).with_others()
    for option in ("--max-rollouts-per-batch 512", "--mode conservative", "--any-group-size", "--n-problems 500"):
        assert option in command
    assert "--step-overhead-seconds 17" in command
    logged = Note("speed-from-runs", "info", "as logged", {"rollouts_per_second": 60.0})
    assert "seconds" not in gather(replace(plan, notes=(*plan.notes, logged)), Asked()).with_others()


def test_what_to_run_first_is_asked_without_the_sizes_that_the_plan_fixes(fits: Fits, tmp_path: Path) -> None:
    plan = Planner(fits).allocate("2M", update_steps=300, min_update_steps=20)
    material = gather(plan.save(tmp_path / "plan.json"), Asked(words=("--rollouts-per-batch", "512", "--spend", "all")))
    for saved in (True, False):
        command = replace(material, plan_file=saved).first
        assert ("--min-update-steps 20" if saved else "--spend all") in command
        assert not {"--update-steps", "--rollouts-per-batch"} & set(command.split())
    assert "--update-steps 300" in material.with_others()


def test_what_a_better_model_costs_is_asked_with_the_speed_of_a_saved_plan(fits: Fits) -> None:
    for budget, options in (("200 gpu_hours", "--rollouts-per-second 60"), ("400M tokens", "--tokens-per-rollout 900")):
        speed = SPEED.replace(tokens_per_rollout=900)
        found = gather(Planner(fits, throughput=speed).allocate(budget, slots=0), Asked())
        assert options in found.instead("--for-reward 0.6")
        assert options in found.first


def test_a_saved_plan_takes_the_price_that_is_given_with_it(fits: Fits, tmp_path: Path) -> None:
    planner = Planner(fits, throughput=SPEED.replace(gpus=8, usd_per_gpu_hour=None))
    file = planner.allocate(400_000).save(tmp_path / "plan.json")
    again = gather(file, Asked(planner={"throughput": Throughput(usd_per_gpu_hour=3.0)})).plan
    assert again is not None
    assert again.costs["usd"] == pytest.approx(3 * again.costs["gpu_hours"])
    assert (again.gpus, again.costs["gpu_hours"]) == (8, Plan.load(file).costs["gpu_hours"])
    # Without the speed it is no longer asked for.
    untimed = Planner(fits).allocate(400_000).save(tmp_path / "untimed.json")
    for price in (None, 3.0):
        given = Asked(planner={"throughput": Throughput(usd_per_gpu_hour=price)})
        missing = fact(answer(gather(untimed, given)), "Time").detail
        assert "--rollouts-per-second" in missing
        assert ("--usd-per-gpu-hour" in missing) == (price is None)
    timed = gather(file, Asked(budget=Budget(gpu_hours=60))).plan
    assert timed is not None
    assert "throughput-extrapolated" not in {note.code for note in timed.notes}


def test_a_plan_that_a_person_changed_says_what_the_other_budgets_hold_fixed(fits: Fits) -> None:
    plan = change_plan(Planner(fits).allocate("3M"), {"update_steps": 40})
    found = gather(plan, Asked())
    assert not found.planned_again
    assert found.plan == plan
    assert {one.problems_per_batch for one in found.ladder} == {plan.problems_per_batch}


def test_a_plan_without_its_fits_still_has_an_answer_and_its_notes(fits: Fits) -> None:
    raw = Planner(fits).allocate("3M").to_dict(with_fits=False)
    page = build(gather(Plan.from_dict(raw), Asked()))
    assert page.slider() is None
    assert pictures(page) == ()
    assert any(isinstance(block, Notes) for block in blocks(page, "sure"))


def test_of_a_part_without_runs_the_page_tells_what_the_part_is_expected_to_reach() -> None:
    law = api.published("qwen2.5-7b-instruct/guru-math-easy")
    plan = Planner(law).allocate(Budget(rollouts=3_000_000, spent={"pilot": 300_000}))
    assert plan.approval is not None
    assert plan.approval.kind == "part"
    assert plan.approval.expected is not None
    told = fact(page_of(plan).answer, "Expected")
    assert told.value == wording.reward(plan.approval.expected) != wording.reward(plan.predicted_reward)


def test_runs_that_cannot_be_fitted_together_are_audited(make_runs: Callable[..., RunSet]) -> None:
    mixed = make_runs(model="a", levels=((8, 32), (32, 32)))
    other = make_runs(model="b", levels=((16, 32), (64, 32)))
    page = build(gather(mixed.concat(other), Asked(fit=QUICK, words=("--bounds", "0", "2"))))
    commands = [page.answer.command, *(one.command for one in blocks(page, "launch") if isinstance(one, Missing))]
    # No option would mend that, so no command is printed that would fail.
    assert not any(commands)
    assert "differ in model" in page.answer.decision
    assert "isocompute doctor RUNS --where model=" in page.answer.decision
    assert page.answer.tone == "neutral"
    assert page.slider() is None
    assert any(isinstance(block, Table) for block in blocks(page, "why"))


def test_a_page_without_a_plan_names_the_arguments_to_who_holds_the_runs_in_memory(
    make_runs: Callable[..., RunSet], tmp_path: Path
) -> None:
    percent = make_runs().to_polars().with_columns(pl.col("value") * 30)
    percent.write_csv(tmp_path / "runs.csv")
    held, read = (
        [one for one in build(gather(source, Asked())).answer.more if "fit={'bounds'" in getattr(one, "text", "")]
        for source in (RunSet(percent), tmp_path / "runs.csv")
    )
    assert (len(held), len(read)) == (1, 0)


def test_an_audit_and_its_saved_file_give_pages(make_runs: Callable[..., RunSet], tmp_path: Path) -> None:
    found = audit(make_runs(), bounds=(-10, 12))
    curves = {one.name for one in pictures(page_of(found))}
    assert curves
    loaded = page_of(found.save(tmp_path / "audit.json"))
    assert "RUNS --metric avg@4 --bounds -10 12 --eval-set validation --budget " in loaded.answer.command
    (behind,) = blocks(loaded, "runs")
    assert isinstance(behind, Missing)
    assert "report RUNS --metric avg@4 --bounds -10 12 " in behind.command
    assert pictures(loaded) == ()
    assert page_of(found).answer.sentence == loaded.answer.sentence
    (group,) = found.groups
    assert group.equal_reward is not None
    assert short(group.equal_reward.mean) in loaded.answer.sentence


def test_logged_metrics_fill_coverage_training_and_health(make_runs: Callable[..., RunSet], material: Material) -> None:
    def falling(n: int, bp: int, compute: float) -> float:
        return 1.2 - 0.1 * math.log10(compute)

    without = make_runs().concat(
        make_runs(falling, metric="entropy", eval_set="train"),
        make_runs(metric="train_reward", eval_set="train"),
    )
    runs = without.concat(make_runs(metric="best@4"), make_runs(metric="worst@4"))
    page = build(replace(material, runs=runs))
    assert {"best-4", "worst-4", "train-validation", "health-entropy"} <= {one.name for one in pictures(page)}
    # What a metric means stands where it is drawn.
    for shown, drawn in ((without, set[str]()), (without.concat(make_runs(metric="best@4")), {"best"})):
        words = repr(runs_section(replace(material, runs=shown)).blocks)
        assert {name for name in ("best", "worst") if f"{name}@k" in words} == drawn


def test_runs_are_listed_by_n_and_number_with_the_best_one_marked(material: Material) -> None:
    def one(n: int, number: int, top: float) -> RunSet:
        computes = np.array([1e4, 2e4, 4e4])
        named = {"run_id": [f"a-n{n}-run{number}"] * 3, "n": [n] * 3, "bp": [8] * 3}
        return RunSet.from_columns({**named, "rollouts": computes, "avg@4": top - 1e3 / computes})

    runs = [one(16, 1, 0.5), one(8, 10, 0.7), one(8, 9, 0.4), one(128, 1, 0.6)]
    section = runs_section(replace(material, runs=runs[0].concat(*runs[1:])))
    (costs,) = [block for block in section.blocks if isinstance(block, Table)]
    assert [row[0] for row in costs.rows] == ["a-n8-run9", "a-n8-run10", "a-n16-run1", "a-n128-run1"]
    assert costs.marked == 1


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"kind": "probe"}')
    with pytest.raises(IsoComputeError, match="probe"):
        gather(tmp_path / "other.json", Asked())


def campaign_folder(folder: Path, fits: Fits, plan: Plan | None, **changes: Any) -> Path:
    """A campaign's folder after its fit, as far as its own files go."""
    study = Study(
        name="loop",
        recipe="easy",
        model="tiny",
        data=Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py", n_problems=6000),
        sweep=Sweep(group_size=(8, 32), problems_per_batch=32, rollouts=40_000),
        budget=3_000_000,
        backend="torch",
    ).replace(**changes)
    settings = CampaignSettings(study, "avg@4", None, {"draws": 24}, {"spend": "all"})
    CAMPAIGN.save(folder / "campaign.json", settings)
    fits.save(folder / "fits.json")
    if plan is not None:
        plan.save(folder / "plan.json")
    return folder


def test_a_campaign_is_planned_with_its_own_settings(fits: Fits, tmp_path: Path) -> None:
    planner = Planner(fits)
    plan = planner.allocate(3e7, n_problems=6000, spend="all")
    found = gather(campaign_folder(tmp_path, fits, plan), Asked())
    assert found.options["spend"] == "all"
    assert found.plan == plan
    one = found.ladder[-2]
    again = planner.allocate(one.budget.amount, n_problems=6000, spend="all")
    assert budgets.numbers(one)[:6] == budgets.numbers(again)[:6]
    assert found.plan is not None
    assert found.plan.approval is not None
    assert found.plan.approval.kind != "do-not"
    (script,) = [block for block in blocks(build(found), "launch") if isinstance(block, Script)]
    assert script.label.startswith("torch")


def test_another_budget_of_a_saved_plan_counts_what_that_had_spent(fits: Fits, tmp_path: Path) -> None:
    plan = Planner(fits).allocate(Budget(rollouts=3e6, spent={"pilot": 1e6}), slots=0)
    found = gather(plan.save(tmp_path / "plan.json"), Asked(budget=Budget(rollouts=4e6))).plan
    assert found is not None
    assert found.budget.available == 3e6


def test_a_plan_that_was_trained_is_not_up_for_approval(fits: Fits, tmp_path: Path) -> None:
    plan = Planner(fits, model="tiny").allocate(3e6, n_problems=6000, spend="all")
    folder = campaign_folder(tmp_path, fits, plan)
    assert "pprove" in answer(gather(folder, Asked())).label
    (low, high) = plan.reward_interval or (0.0, 1.0)
    measured = Comparison("plan", "avg@4", plan.rollouts, high + 0.02, plan.predicted_reward or 0.0, low, high, 1e6)
    COMPARISON.save(folder / COMPARISON_FILE, measured)
    found = answer(gather(folder, Asked()))
    assert (found.label, found.tone) == ("Trained", "caution")
    assert f"{high + 0.02:.3f}" in found.sentence
    assert fact(found, "Measured").value == f"{high + 0.02:.3f}"
    assert found.decision.startswith("Nothing to approve")


def test_a_trained_run_is_in_the_picture_and_its_gain_is_measured_less_measured(
    fits: Fits, material: Material, page: Page
) -> None:
    plan = material.plan
    assert plan is not None
    assert fits.runs is not None
    computes = np.geomspace(1e5, plan.rollouts, 6)
    columns = {"run_id": ["new"] * 6, "n": [plan.group_size] * 6, "bp": [plan.problems_per_batch] * 6}
    runs = RunSet.from_columns({**columns, "rollouts": computes, "avg@4": np.linspace(0.3, 0.7, 6)})
    measured = Comparison("new", "avg@4", plan.rollouts, 0.7, 0.65, 0.6, 0.72, 1e6)
    again = api.refit(fits, runs, pool=("unstated",))
    trained = build(replace(material, runs=runs, comparison=measured, refit=again))
    (own,) = runs.series("avg@4")
    fitted = again.predict(own.rollouts_T[-1], own.group_size, own.problems_per_batch, kind="at").mean
    assert f"{float(fitted):.3f}" in fact(trained.answer, "Measured avg@4").detail
    ends = [one.value_T[-1] for one in RunSet.from_dict(fits.runs).series("avg@4")]
    gained = fact(trained.answer, "Gain over the best run before it")
    assert float(gained.value) == pytest.approx(0.7 - round(max(ends), 3))
    assert [one.name for one in pictures(trained) if "trained" in one.svg] == ["curves"]
    assert "trained" not in pictures(page)[0].svg


def test_nothing_is_predicted_where_no_run_rises(make_runs: Callable[..., RunSet]) -> None:
    rng = np.random.default_rng(0)
    noise = make_runs(lambda n, bp, c: float(rng.normal(0.4, 0.02)), [(8, 16), (32, 16)], np.geomspace(1e3, 1e5, 8))
    found = build(gather(noise, Asked(Budget(rollouts=3e6), fit=QUICK)))
    assert found.answer.tone == "stop"
    assert not re.search("n = [0-9]", found.answer.sentence)
    assert found.answer.command
    assert not found.answer.facts
    assert not [block for block in found.blocks if isinstance(block, Script)]
    assert found.slider() is None


def test_commands_on_the_page_repeat_all_that_made_it(fits: Fits, tmp_path: Path) -> None:
    path = fits.save(tmp_path / "fits.json")
    words = ("--mode", "conservative", "--recipe-value", "kl_coef=0")
    budget = Budget(rollouts=2e6, spent={"pilot": 1e5})
    asked = Asked(budget, "n=8,bp=32", words=words, output="--output answer.html")
    found = gather(path, asked)
    whole = f"isocompute report {path} --budget 2000000 --spent pilot=100000 --against n=8,bp=32"
    whole += " --mode conservative --recipe-value kl_coef=0"
    assert found.again() == f"{whole} --output answer.html"
    without = gather(path, replace(asked, compare=None, budget=None))
    commands = [block.command for block in answer(without).more if isinstance(block, Missing) and block.command]
    assert commands
    assert all(" ".join(words) in command and command.endswith("--output answer.html") for command in commands)


def test_a_campaign_has_a_page_from_its_first_minute_on(fits: Fits, tmp_path: Path) -> None:
    folder = campaign_folder(tmp_path, fits, None)
    planless = build(gather(folder, Asked()))
    assert planless.answer.tone == "neutral"
    assert any(one.name == "curves" for one in pictures(planless))
    (folder / "fits.json").unlink()
    begun = build(gather(folder, Asked()))
    assert pictures(begun) == ()
    assert [section.name for section in begun.sections] == ORDER


def test_runs_that_measured_another_average_have_their_rewards_and_their_framework_on_the_page(
    make_runs: Callable[..., RunSet],
) -> None:
    # TRL evaluates with n samples per problem: avg@n.
    compute = np.geomspace(1e3, 1e5, 12)
    parts = [
        make_runs(lambda n, bp, c: 0.3 + 0.4 * c / (c + 2e4), [(n, 32)], compute, f"avg@{n}", framework="trl")
        for n in (4, 8, 16)
    ]
    runs = parts[0].concat(*parts[1:])
    page = page_of(runs, Budget(rollouts=2e5))
    (costs,) = [block for block in blocks(page, "runs") if isinstance(block, Table)]
    column = next(i for i, name in enumerate(costs.header) if name.startswith("Highest "))
    assert [float(row[column]) for row in costs.rows] == pytest.approx([0.3 + 0.4 / 1.2] * 3, abs=6e-4)
    (missing,) = [block for block in blocks(page, "launch") if isinstance(block, Missing)]
    assert "--backend trl" in missing.command
    assert "openrlhf" not in missing.text
    saved = launch_script(gather(Planner(api.fit(runs, draws=24)).allocate(2e5), Asked())).blocks[-1]
    assert isinstance(saved, Missing)
    assert "--backend trl" in saved.command
    traces = traces_of(runs, "avg@4")
    assert all(REWARD in one.traces for one in traces)


def test_a_plan_that_gains_nothing_over_the_best_run_is_not_approved(fits: Fits) -> None:
    reach = fits.largest_compute or 0
    plan = Planner(fits).allocate(0.4 * reach, spend="all", slots=0)
    assert plan.gain is not None
    assert plan.gain.gain <= 0
    little = Planner(fits).allocate("3M")
    assert little.gain is not None
    assert 0 < little.gain.gain < 0.005
    for one in (plan, little):
        found = answer(gather(one, Asked()))
        assert found.label == "Do not approve yet"
        # Going on with that run gains more.
        assert found.command.startswith("isocompute forecast RUNS --metric avg@4 --run ")
    assert f"{little.gain.gain:.3f}" in found.decision


def test_only_an_approved_plan_of_a_model_that_can_be_loaded_has_its_script_on_the_page(fits: Fits) -> None:
    approved, refused = (Planner(fits).allocate(budget) for budget in ("6M", "12M"))
    cases = [(approved, "Qwen/Qwen2.5-7B", True), (refused, "Qwen/Qwen2.5-7B", False), (approved, "7B+SFT", False)]
    for plan, model, whole in cases:
        (last, *rest) = reversed(launch_script(gather(replace(plan, model=model), Asked())).blocks)
        assert isinstance(last, Script) == whole
        if isinstance(last, Missing):
            assert not rest
            assert "isocompute launch" in last.command


def test_a_folder_that_holds_a_plan_has_its_page(fits: Fits, tmp_path: Path) -> None:
    plan = Planner(fits).allocate("2M")
    plan.save(tmp_path / "plan.json")
    (tmp_path / "runs.csv").write_text("run_id,n,bp,step,avg@4\na,8,8,1,0.1\n")
    found = gather(tmp_path, Asked())
    assert (found.plan, found.assumed_budget) == (plan, False)
