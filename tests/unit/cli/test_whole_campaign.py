"""`isocompute run` for a study with a budget and no sweep."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk import RunSet, api
from isocompute_sdk.campaigns.campaign import Campaign
from isocompute_sdk.campaigns.overview import overview, resuming
from isocompute_sdk.campaigns.pilot_rounds import read_decisions
from isocompute_sdk.cli.shared import following
from isocompute_sdk.errors import FitError
from isocompute_sdk.planning import Plan
from isocompute_sdk.reporting.material import Asked, gather
from isocompute_sdk.reporting.page import Missing
from isocompute_sdk.reporting.report import build
from isocompute_sdk.run_folders.store import EXIT_FILE
from isocompute_sdk.specs import Budget, Throughput, load_study
from isocompute_sdk.timing.spending import spending
from tests.processes import ok

STUDY = """\
name: auto
model: simulation/easy-1
data: {train: t.jsonl, validation: v.jsonl, reward: r.py}
recipe: {preset: easy, min_problems_per_batch: 8}
budget: 100k
pilot: {slots: 3, stop_early: false, largest_share: 0.1}
backend: simulator
options: {task: easy, task_seed: 1, scale: 20_000}
"""
LOOKING = STUDY.replace("stop_early: false, largest_share: 0.1", "largest_share: 0.35")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def pause_at(words: str) -> None:
    """Carry out study.yaml of the current folder until a decision says these words."""

    def pause(reason: str) -> None:
        if words in reason:
            raise KeyboardInterrupt

    study = load_study("study.yaml")
    with pytest.raises(KeyboardInterrupt):
        Campaign(study, f"runs/{study.name}", base=Path.cwd(), on_decision=pause).run()


def goes_on_from_fit(isocompute: Run) -> list[str]:
    """The command that a fit of runs/auto names, without the program."""
    (line,) = [line for line in ok(isocompute("fit", "runs/auto")).stdout.splitlines() if line.startswith("next: ")]
    return shlex.split(line)[2:]


def test_one_command_carries_a_budget_from_pilot_to_report_and_judges_the_plan(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    live = ok(isocompute("run", "study.yaml"))
    found = json.loads(ok(isocompute("run", "study.yaml", "--against", "n=4,bp=8", "--json")).stdout)
    assert found["plan"]["rollouts"] <= 100_000
    judged = found["against"]
    assert 0 <= judged["probability"] <= 1
    # The page that it writes says the same, and what was left for the plan is what n = 4 gets.
    shown = (tmp_path / found["report"]).read_text()
    assert f"{judged['update_steps']:,}</span> at the same budget" in shown
    left = found["plan"]["budget"]["rollouts"] - found["plan"]["budget"]["spent"]["pilot"]
    assert left - 32 < judged["costs"]["rollouts"] <= left
    folder = tmp_path / "runs" / "auto"
    # Simulated runs log no time worth a number.
    assert ">0 s<" not in (tmp_path / found["report"]).read_text()
    # Pilot and plan share one budget, and every decision is on file.
    taken = read_decisions(folder)
    assert [one.what for one in taken][:1] + [one.what for one in taken][-2:] == ["round", "end", "plan"]
    assert all((live.stdout + live.stderr).count(one.reason) == 1 for one in taken)
    pilot = sum(run.rollouts for run in taken[-2].runs)
    assert pilot <= 0.1 * 100_000
    planned = taken[-1].named[taken[-1].planned]
    assert found["plan"]["rollouts"] == planned.rollouts <= 100_000 - taken[-1].spent
    assert found["plan"]["budget"]["spent"] == pytest.approx({"pilot": taken[-2].spent})
    # Again: nothing is trained, and it tells in words what was decided.
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.jsonl")}
    monkeypatch.setattr(following, "write_page", lambda *_, **__: (None, ""))
    told = isocompute("run", "study.yaml").stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "round 1:" in told
    assert "planned run " in told
    asked, said = found["plan"]["approval"], re.findall(r"^(.* step) [0-9,]+: measured", told, re.MULTILINE)
    assert said == {"check": ["check at step"], "part": ["at the approved step"]}.get(asked["kind"], [])
    status = isocompute("status", "runs/auto").stdout
    assert "spent: pilot" in status
    # Another n may be the best at what was spent than at the budget.
    assert re.search(r"predicted best so far: n = .* at [0-9,]+ rollouts", status)
    watched = isocompute("status", "runs/auto", "--watch")
    assert "left: " in watched.stdout
    # More budget is asked about before it is spent.
    monkeypatch.chdir(tmp_path)
    ok(isocompute(*goes_on_from_fit(isocompute)))
    more = json.loads(ok(isocompute("next", "study.yaml", "--budget", "150k", "--json")).stdout)
    page = gather(folder, Asked(budget=Budget("150k"))).plan
    assert page is not None
    # A plan may go on with the run that was trained.
    assert page.budget.available <= 150_000 - found["plan"]["rollouts"]
    assert page.next_runs is not None
    assert more["runs"] == page.next_runs.to_dict()["runs"]
    plan = json.loads(
        ok(isocompute("allocate", "runs/auto", "--eval-set", "validation", "--budget", "150k", "--json")).stdout
    )
    assert plan["budget"]["spent"]["pilot"] > found["plan"]["rollouts"]
    # A script would begin anew and spend that again: first comes the command that `next` names.
    printed = ok(isocompute("allocate", "runs/auto", "--budget", "400k", "--output", "plan.json")).stdout
    goes_on = ok(isocompute("next", "runs/auto", "--budget", "400k")).stdout.splitlines()[-1].partition(": ")[2]
    before, own, _ = printed.partition(goes_on)
    assert own
    assert "isocompute launch" not in before
    # What was trained is spent.
    alone = [isocompute(*asked) for asked in (("next", "study.yaml"), ("allocate", "runs/auto"))]
    assert {(one.returncode, one.stderr) for one in alone} == {(1, alone[0].stderr)}
    asked = ok(
        isocompute(
            "allocate",
            "runs/auto",
            "--eval-set",
            "validation",
            "--budget",
            "100k",
            "--compare",
            "n=4,bp=8",
            "--spent",
            "pilot=1k",
        )
    )
    assert "probability" in asked.stdout


def test_a_run_that_pauses_for_a_look_is_not_called_finished(isocompute: Run, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(LOOKING)
    said = ok(isocompute("run", "study.yaml")).stderr
    first = next(one for one in read_decisions(tmp_path / "runs" / "auto") if one.looks)
    for run in first.runs:
        assert f"{run.run_id} at step {run.update_steps} of {run.final_steps}," in said
        assert f"{run.run_id} finished" in said


def test_what_comes_before_the_next_decision_is_said_alike_on_every_screen(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(LOOKING)
    folder = Path("runs/auto")
    pause_at("interim look")
    last = read_decisions(folder)[-1]
    trains = [f"{run.run_id} to step {run.update_steps}" for run in last.runs if run.stopped is None]
    (folder / "decisions" / f"{last.number}-{last.what}.json").rename(tmp_path / "look.json")
    looks = [run.paused for run in read_decisions(folder)[-1].pausing]
    assert looks
    for first in (looks, trains):
        if first == trains:
            (tmp_path / "look.json").rename(folder / "decisions" / f"{last.number}-{last.what}.json")
        page = [one.text for one in build(gather(folder, Asked())).answer.more if isinstance(one, Missing)]
        asked = (("next", "study.yaml"), ("next", str(folder)), ("allocate", str(folder)), ("status", str(folder)))
        for text in ("\n".join(page), *(ok(isocompute(*one)).stdout for one in asked)):
            assert all(one in " ".join(text.split()) for one in first)
        # They are no finished runs, and have the length that they go on to.
        lines = ok(isocompute("status", str(folder))).stdout.splitlines()[: len(last.runs)]
        states = {line.split()[0]: line for line in lines}
        assert all(("paused" in states[run.run_id]) == (first == looks or run.stopped is None) for run in last.runs)
        assert not any("finished" in line for line in lines)
    # Where too little is measured it goes on too.
    for run in last.runs[1:]:
        (folder / run.run_id).rename(tmp_path / run.run_id)
    journal = folder / last.runs[0].run_id / "metrics.jsonl"
    whole = journal.read_text()
    journal.write_text("".join(whole.splitlines(keepends=True)[:3]))
    for command in ("next", "allocate"):
        refused = isocompute(command, str(folder))
        assert refused.returncode == 1
        assert resuming(folder) in refused.stderr
    journal.write_text(whole)
    for run in last.runs[1:]:
        (tmp_path / run.run_id).rename(folder / run.run_id)
    # Its own budget is asked about, not one by the length of its runs.
    assert ok(isocompute("audit", str(folder))).stdout.endswith(f": isocompute next {folder}\n")


def test_a_campaign_is_named_by_its_study_and_its_folder_alike_also_where_that_was_moved(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    folder, moved = Path("runs/auto"), Path("elsewhere/auto")
    pause_at("planned run")

    def twice(*sources: Path, more: tuple[str, ...] = ()) -> str:
        one, two = (isocompute("next", str(source), *more) for source in sources)
        assert (one.returncode, one.stderr) == (two.returncode, two.stderr)
        # Each names the file that it was asked about.
        assert one.stdout == two.stdout.replace(f"{folder}/study.yaml", "study.yaml")
        return " ".join((two.stdout + two.stderr).split())

    command = resuming(folder)
    assert twice(Path("study.yaml"), folder).endswith(f": {command}")
    # Its file says the budget.
    larger = ok(isocompute("next", str(folder), "--budget", "150k")).stdout.splitlines()[-1]
    assert larger.endswith(f"set budget: 150k in {folder}/study.yaml, then: {command}")
    assert larger.removeprefix("next: ") in ok(isocompute("allocate", str(folder), "--budget", "150k")).stdout
    # A smaller budget, which the runs may already cost, is refused alike.
    less = isocompute("next", str(folder), "--budget", "50k")
    (tmp_path / "study.yaml").write_text(STUDY.replace("100k", "50k"))
    assert less.returncode == 1
    assert isocompute("next", "study.yaml").stderr == less.stderr
    assert isocompute("run", "study.yaml").stderr.endswith(less.stderr)
    (tmp_path / "study.yaml").write_text(STUDY)
    moved.parent.mkdir()
    folder.rename(moved)
    said = [twice(moved / "study.yaml", moved, more=more) for more in ((), ("--budget", "150k"))]
    said += [isocompute("run", str(moved / "study.yaml")).stderr, ok(isocompute("status", str(moved))).stdout]
    assert all(f"move {moved} back to {folder}" in one for one in said)
    assert not folder.exists()
    moved.rename(folder)
    monkeypatch.chdir(folder)
    assert resuming(Path()) == f"cd {tmp_path.resolve()} && {command}"
    monkeypatch.chdir(tmp_path)
    ok(isocompute(*shlex.split(command)[1:]))
    done = ok(isocompute("status", str(folder))).stdout
    assert "auto: done; no controller is running\n" in done
    # Without a controller its page says how a run that ended by itself came out, as the next start would.
    compared = gather(folder, Asked()).comparison
    for name in ("refit", "comparison"):
        (folder / f"{name}.json").rename(tmp_path / f"{name}.json")
    assert compared is not None
    assert gather(folder, Asked()).comparison == compared
    ended = build(gather(folder, Asked())).answer
    assert f"{compared.measured:.3f}" in ended.sentence
    assert command in [one.command for one in ended.more if isinstance(one, Missing)]
    assert "has ended, its next start compares it" in ok(isocompute("status", str(folder))).stdout
    assert "has ended, its next start compares it" in isocompute("next", str(folder)).stderr
    # While it trains its plan, its page tells what was spent before from what is.
    journal = folder / read_decisions(folder)[-1].planned / "metrics.jsonl"
    whole = journal.read_text()
    journal.write_text(whole[: whole.rindex("\n", 0, -1) + 1])
    journal.with_name(EXIT_FILE).rename(tmp_path / EXIT_FILE)
    training = gather(folder, Asked())
    assert training.plan is not None
    assert training.spent_since == training.plan.to_pay("rollouts") > 0
    told = [one.text for one in build(training).answer.more if isinstance(one, Missing)]
    assert f" {training.spent_since:,.0f} of that" in " ".join(told)
    journal.write_text(whole)
    (tmp_path / EXIT_FILE).rename(journal.with_name(EXIT_FILE))
    for name in ("refit", "comparison"):
        (tmp_path / f"{name}.json").rename(folder / f"{name}.json")
    # Its next start takes what was edited in its folder.
    (tmp_path / "study.yaml").write_text(STUDY.replace("100k", "150k"))
    copy = folder / "study.yaml"
    copy.write_text(copy.read_text().replace("100000", "150000"))
    twice(Path("study.yaml"), folder)
    asked = json.loads(ok(isocompute("allocate", str(folder), "--json")).stdout)
    page = gather(folder, Asked())
    assert page.plan is not None
    assert (page.plan.update_steps, page.plan.budget.amount) == (asked["update_steps"], 150_000)
    assert page.resuming == command
    status = ok(isocompute("status", str(folder))).stdout
    assert "100000 -> 150000" in status
    assert "of 150,000 rollouts" in status
    assert command in status


def test_runs_so_far_count_towards_the_deadline_of_their_study_and_no_other(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = "budget: {rollouts: 100k, deadline_hours: 20}\n"
    timed += "throughput: {rollouts_per_second: 60, step_overhead_seconds: 30, gpus: 1}"
    text = STUDY.replace("budget: 100k", timed).replace("scale: 20_000", "scale: 20_000, clock: true")
    # As many train at once as the executor takes.
    text = text.replace("slots: 3, ", "")
    (tmp_path / "study.yaml").write_text(text)
    own, folder = load_study(tmp_path / "study.yaml"), tmp_path / "runs" / "auto"

    def pause(_: str) -> None:
        if folder.is_dir() and any(folder.glob("*/metrics.jsonl")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Campaign(own, folder, base=tmp_path, on_decision=pause).run()
    pilot = Campaign(own, folder, base=tmp_path).designed
    assert pilot is not None
    assert own.budget is not None
    hours = spending(folder.glob("n*/")).hours
    assert hours > 0.1
    budgets = [None, own.budget.replace(rollouts=2e5), own.budget.replace(rollouts=2e5, deadline_hours=9)]
    plans = [gather(folder, Asked(budget=budget)).plan for budget in budgets]
    made = pilot.plan(Campaign(own, folder, base=tmp_path).fit(), {})
    first = gather(folder, Asked()).plan
    assert first is not None
    assert (first.update_steps, first.cost, first.budget) == (made.update_steps, made.cost, made.budget)
    left = 20 - hours / pilot.slots
    assert [plan.budget.deadline_hours for plan in plans if plan is not None] == pytest.approx([left, left, 9])
    # Once the deadline passed, status says so, also while the plan trains.
    monkeypatch.chdir(tmp_path)
    Campaign(own, folder, base=tmp_path).run()
    (folder / "refit.json").unlink()
    assert "deadline passed" not in ok(isocompute("status", str(folder))).stdout
    for journal in folder.glob("*/metrics.jsonl"):
        slow = re.sub(r'("sampling": )[0-9.]+', r"\g<1>9999.0", journal.read_text())
        journal.write_text(slow)
    assert ok(isocompute("status", str(folder))).stdout.count("deadline passed") == 1


def untold(*_: object, **__: object) -> Throughput:
    """Speed of runs that do not show it."""
    raise FitError("seconds per step do not grow with the batch", "Give --rollouts-per-second.")


def test_a_campaign_stops_before_its_plan_where_runs_speak_against_it(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study, folder = tmp_path / "study.yaml", Path("runs/flat")
    flat = STUDY.replace("100k", "400k").replace(
        "slots: 3, stop_early: false, largest_share: 0.1", "largest_share: 0.08"
    )
    flat = flat.replace("task_seed: 1, scale: 20_000", "task_seed: 3, scale: 30_000").replace("auto", "flat", 1)
    study.write_text(flat)
    pause_at("round 2")
    (decided,) = (folder / "decisions").glob("2-*")
    longer = [f"M = {run.final_steps}" for run in read_decisions(folder)[-1].runs]
    decided.rename(tmp_path / "decided.json")
    # The next start makes its runs longer: so says whatever is asked before it.
    asked = [ok(isocompute(one, "runs/flat")).stdout for one in ("status", "next", "allocate")]
    page = build(gather(folder, Asked())).answer
    assert all(f"isocompute run {folder}/study.yaml" in one for one in asked)
    assert all("the runs go on" in one for one in (*asked[:2], page.sentence))
    assert all(one in text for one in longer for text in asked[1:])
    (tmp_path / "decided.json").rename(decided)
    stopped = isocompute("run", "study.yaml")
    assert stopped.returncode == 1
    assert "rises beyond noise" in stopped.stderr
    # What says how it goes on says that it stopped, and nothing would train a plan without a rise.
    (reason,) = re.findall(r"error: (.*)", stopped.stderr)
    told = build(gather(folder, Asked())).answer
    shown = [one.text for one in told.more if isinstance(one, Missing)]
    for text in (*(ok(isocompute(one, "runs/flat")).stdout for one in ("status", "next")), " ".join(shown)):
        assert reason in text
        assert "isocompute run" not in text
        assert "its plan to the end" not in text
    assert "isocompute launch" not in stopped.stderr
    # The command that tests the reward names the files of the study, where they are.
    assert not told.command
    (tmp_path / "t.jsonl").touch()
    assert {"t.jsonl", "r.py"} < set(shlex.split(build(gather(folder, Asked())).answer.command))
    taken = read_decisions(folder)
    assert all(one.what != "plan" for one in taken)
    # Before it stops its runs go on for longer, and with more of the budget until one rises.
    first, last = ({run.run_id: run.final_steps for run in one.runs} for one in (taken[0], taken[-1]))
    assert all(first[name] < last[name] <= 2 * first[name] for name in first)
    study.write_text(flat.replace("0.08", "0.35"))
    ok(isocompute("run", "study.yaml"))
    assert read_decisions(folder)[-1].what == "plan"


def test_a_campaign_plans_with_the_speed_of_its_runs_where_its_study_states_a_higher_one_or_none(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study, folder = tmp_path / "study.yaml", Path("runs/auto")
    text = STUDY.replace("budget: 100k", "budget: 20 gpu_hours").replace("scale: 20_000", "scale: 20_000, clock: true")
    text += "hardware: {gpus: 1}\n"
    study.write_text(f"{text}throughput: {{rollouts_per_second: 20, gpus: 1, usd_per_gpu_hour: 2}}\n")
    pause_at("round 2")
    # Where it says what comes next, it says so.
    status = ok(isocompute("status", str(folder))).stdout
    assert status.count("times as long") == ok(isocompute("next", str(folder))).stdout.count("times as long") == 1
    assert "GPU-hours" in next(line for line in status.splitlines() if line.startswith("spent:"))
    told = [one.text for one in build(gather(folder, Asked())).answer.more if isinstance(one, Missing)]
    assert any("times as long" in one for one in told)
    shutil.copytree(folder, tmp_path / "runs" / "kept")
    assert "times as long" in ok(isocompute("run", "study.yaml")).stdout
    found, plan = overview(folder), Plan.load(folder / "plan.json")
    assert found is not None
    assert found.left is not None
    assert found.left >= 0
    assert plan.throughput is not None
    assert 0 < (plan.throughput.rollouts_per_second or 0) < 20
    # The runs say the speed that a study leaves out, unless they do not tell; then a safe one is to be written.
    shutil.rmtree(folder)
    (tmp_path / "runs" / "kept").rename(folder)
    study.write_text(text)
    with monkeypatch.context() as unknown:
        unknown.setattr(Throughput, "measure", untold)
        written = isocompute("run", "study.yaml").stderr.split("start again: ")[1]
    study.write_text(text + written)
    ok(isocompute("next", "study.yaml"))
    # No option is named that `isocompute run` does not have.
    study.write_text(text.replace("20 gpu_hours", "{usd: 20}").replace("auto", "dear", 1) + written)
    unpriced = isocompute("run", "study.yaml").stderr
    assert "usd_per_gpu_hour" in unpriced
    assert "--usd-per-gpu-hour" not in unpriced


def test_the_page_of_a_paused_campaign_gives_the_answer_of_its_study_and_the_command_that_goes_on(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY.replace("scale: 20_000", "scale: 20_000, clock: true"))
    folder, said = Path("runs/auto"), list[str]()

    def pause(reason: str) -> None:
        said.append(reason)
        if len(said) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Campaign(load_study("study.yaml"), folder, base=tmp_path, on_decision=pause).run()
    found = gather(folder, Asked())
    assert found.plan is not None
    spent = read_decisions(folder)[-1].spent
    assert found.plan.predicted_reward is not None
    asked = json.loads(ok(isocompute("next", "study.yaml", "--json")).stdout)
    assert found.plan.next_runs is not None
    assert asked["runs"] == found.plan.next_runs.to_dict()["runs"]
    told = [one for one in build(found).answer.more if isinstance(one, Missing) and one.command == found.resuming]
    assert f"{spent:,.0f} of 100,000 rollouts" in told[0].text
    # Also between fit and plan its page gives the plan that the campaign is about to make.
    own = Campaign(load_study("study.yaml"), folder, base=tmp_path)
    assert own.fit().largest_compute
    page = gather(folder, Asked()).plan
    assert page is not None
    asked = json.loads(ok(isocompute(*goes_on_from_fit(isocompute), "--json")).stdout)
    assert asked["budget"]["rollouts"] == 100_000
    # Also where its folder was moved to; what was typed as spent is all that is.
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    typed = [Asked(), Asked(budget=Budget(rollouts=200_000, spent={"pilot": 7e4}))]
    plans = [gather(moved, asked).plan for asked in typed]
    assert [None if plan is None else plan.budget.available for plan in plans] == [page.budget.available, 130_000]
    # What the study does not say, its next start does not do.
    capped = ok(isocompute("next", "study.yaml", "--max-rollouts-per-batch", "64")).stdout
    assert "change the study first" in capped
    made = own.allocate()
    assert (page.group_size, page.update_steps, page.budget) == (made.group_size, made.update_steps, made.budget)
    # With the seconds that the runs logged too, though no budget in rollouts needs them.
    assert (page.wall_hours, page.evaluation) == (made.wall_hours, made.evaluation)
    assert made.wall_hours is not None
    ok(isocompute(*shlex.split(found.resuming)[1:]))
    assert gather(folder, Asked()).comparison is not None
    assert isocompute("next", "study.yaml").returncode == 1
    # While the plan is trained its page says, in place of asking for it, what was measured at the step of its approval.
    going = tmp_path / "going"
    shutil.copytree(folder, going)
    for name in ("comparison.json", "refit.json", f"{read_decisions(folder)[-1].planned}/exit.json"):
        (going / name).unlink()
    journal = going / read_decisions(folder)[-1].planned / "metrics.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-3]))
    shown = build(gather(going, Asked())).answer
    assert made.approval is not None
    assert f"step {made.approval.step}: measured" in shown.decision
    # What it has trained already is not to be approved.
    assert "Approve" not in shown.label
    (tmp_path / "study.yaml").write_text(Path("study.yaml").read_text().replace("100k", "150k"))
    assert "isocompute run study.yaml" in ok(isocompute("next", "study.yaml")).stdout
    # From another folder the same command would begin another campaign.
    monkeypatch.chdir(folder)
    assert not found.resuming


def test_a_deadline_and_what_was_spent_before_are_in_every_answer_about_a_campaign(
    isocompute: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = STUDY.replace("100k", "{rollouts: 100k, deadline_hours: 1.2, spent: {labelling: 5k}}")
    study += "throughput: {rollouts_per_second: 20, gpus: 1}\n"
    (tmp_path / "study.yaml").write_text(study)
    folder = Path("runs/auto")
    pause_at("round 2")
    # Its file keeps them where its amount is edited.
    for command in ("next", "allocate"):
        assert "set rollouts: 150000 under budget:" in ok(isocompute(command, str(folder), "--budget", "150k")).stdout
    found, of_page = overview(folder), gather(folder, Asked())
    assert found is not None
    assert found.left is not None
    assert "deadline allows" in ok(isocompute("allocate", str(folder))).stdout
    for material, other in ((of_page, False), (gather(folder, Asked(budget=Budget("150k"))), True)):
        text = " ".join(one.text for one in build(material).answer.more if isinstance(one, Missing))
        assert ("change the budget" in text) == other
        assert f"{100_000 - found.left:,.0f} of 100,000 rollouts" in text
    # What a reward costs is asked without them, so not of a campaign.
    assert isocompute("allocate", str(folder), "--for-reward", "0.4").returncode == 1
    # The command of the page asks the same again.
    assert "--spent" not in of_page.again()


def test_every_command_fits_the_folder_of_a_study_as_its_campaign_does(isocompute: Run, tmp_path: Path) -> None:
    # Two batches do not show the rule that their learning rates follow.
    study = STUDY.replace("pilot:", "sweep: {group_size: [4, 16], problems_per_batch: 8, rollouts: 10k}\n#")
    (tmp_path / "study.yaml").write_text(study)
    told = ok(isocompute("run", "study.yaml")).stdout
    first, *others = json.loads(ok(isocompute("forecast", "runs/auto", "--json")).stdout)["forecasts"]
    fits = api.fit(RunSet.read(tmp_path / "runs" / "auto"), "avg@4", "validation", pool=("learning_rate",))
    for one in (first, *others):
        assert one["reward"] == pytest.approx(api.forecast(fits, one["run_id"]).reward)
    ok(isocompute(*shlex.split(told.strip().splitlines()[-1].removeprefix("next: isocompute "))))
    budget = ("--budget", "100k", "--spent", "pilot=1k")
    plan = json.loads(ok(isocompute("allocate", "runs/auto", *budget, "--json")).stdout)
    assert plan["budget"]["spent"] == {"pilot": 1000}
    assert isocompute("allocate", "runs/auto", *budget[2:]).returncode == 1


def test_options_of_a_sweep_and_a_campaign_are_not_mixed_up(isocompute: Run, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    assert isocompute("run", "study.yaml", "--only", "n4-bp8-seed0").returncode == 1
    assert isocompute("run", "study.yaml", "--against", "n=four").returncode == 1
    refused = isocompute("run", "study.yaml", "--dry-run")
    assert refused.returncode == 1
    command = refused.stderr.strip().splitlines()[-1].partition("isocompute ")[2]
    assert "M = " in ok(isocompute(*command.split())).stdout
    # A budget that pays for nothing is refused before anything is written too.
    (tmp_path / "study.yaml").write_text(STUDY.replace("100k", "1k"))
    small = isocompute("run", "study.yaml")
    assert small.returncode == 1
    assert "--" not in small.stderr
    sweep = STUDY.replace("pilot:", "sweep: {group_size: [4, 8], problems_per_batch: 8, rollouts: 10k}\n#")
    (tmp_path / "study.yaml").write_text(sweep)
    assert isocompute("run", "study.yaml", "--against", "n=4,bp=8").returncode == 1
    assert not (tmp_path / "runs").exists()
