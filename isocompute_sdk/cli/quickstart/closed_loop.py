"""The closed loop of `isocompute quickstart`: its task, its study and its report."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_fits, print_notes
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.whole_campaign import STAGES, say_decisions, say_spending
from isocompute_sdk.cli.shared.work_progress import WorkProgress, resumable
from isocompute_sdk.errors import BackendError, IsoComputeError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.campaign import Campaign, Outcome
    from isocompute_sdk.specs import Study

FOLDER = Path("isocompute-quickstart")
BUDGET = "368k"
SMALLEST_BUDGET = 120_000
"""Smallest budget whose pilot has more than one group size for long enough."""
PROBLEMS_PER_BATCH = 16
TASK = "task"
FAMILY, DIFFICULTY, SEED = "mul31", "easy", 0
ANSWER_TOKENS = 5
"""Four digits and the end token."""
NEEDED = ("torch", "transformers")


def run_closed_loop(budget: str, output: Path, parallel: int | None, *, verbose: bool, json: bool) -> None:
    """Run the loop in `output`, or resume it there, and report.

    Raises:
        IsoComputeError: torch is missing.
        SpecError: a budget in another unit than rollouts or too small, or `output` is a file.
        BackendError: a run failed.
    """
    from isocompute_sdk.campaigns.campaign import Campaign
    from isocompute_sdk.campaigns.executors import LocalExecutor
    from isocompute_sdk.reporting.report import FILE, report

    _require_torch()
    _check_budget(budget)
    if output.exists() and not output.is_dir():
        raise SpecError(
            f"--output {output} is a file; accepted: a new folder, or one that this command began",
            "Name another folder.",
        )
    began = time.monotonic()
    with resumable(), WorkProgress() as progress:
        progress.stage("preparing task and base model")
        measured = prepare_task(output)
        campaign = Campaign(
            study=make_study(budget, measured),
            folder=output,
            executor=LocalExecutor(parallel),
            plan_options={"spend": "all"},
            watch=lambda stage, statuses: progress.runs(STAGES[stage], statuses),
            on_decision=progress.say,
        )
        outcome = campaign.run()
        progress.stage("writing script and pictures")
        written = _write(campaign, outcome)
        progress.stage("writing the report")
        written.append(report(campaign.root, campaign.root / FILE))
    seconds = time.monotonic() - began
    if json:
        emit_json(
            {
                "kind": "quickstart",
                "plan": outcome.plan.to_dict(with_fits=False),
                "comparison": outcome.comparison.to_dict(),
                "seconds": seconds,
                "files": [str(path) for path in written],
            }
        )
        return
    _report(campaign, outcome, measured)
    if verbose:
        say()
        print_fits(outcome.fits)
        say()
    say(f"{output}/: task/, runs/, " + ", ".join(str(path.relative_to(campaign.root)) for path in written))
    say(f"the answer on one page: {output / FILE}")
    say(f"this start took {seconds:.0f} s; next: isocompute status {quote(str(output))}")
    say("for a study of your own: isocompute run --help")


def make_study(budget: str, measured: dict[str, Any]) -> Study:
    """A whole campaign on the built-in task, with settings that work for its model.

    Its runs take seconds, so that a pause to judge them would cost more than it saves.
    """
    from isocompute_sdk.specs import Data, Evaluation, Recipe, Study

    return Study.model_validate(
        {
            "name": "pilot",
            "model": f"{TASK}/model",
            "data": Data(
                train=f"{TASK}/train.jsonl",
                validation=f"{TASK}/validation.jsonl",
                reward=f"{TASK}/reward.py",
                n_problems=measured["train"]["problems"],
            ),
            "recipe": Recipe(
                based_on="hard",
                name="tiny",
                learning_rate_anchor=4e-4,
                temperature=1.0,
                max_response_tokens=ANSWER_TOKENS,
                min_problems_per_batch=PROBLEMS_PER_BATCH,
            ),
            "pilot": {"stop_early": False},
            "budget": budget,
            "evaluation": Evaluation(samples=4, temperature=1.0, n_problems=None),
            "backend": "torch",
            "options": {"threads": 1, "device": "cpu", "evaluations_per_decade": 8, "probe_problems": 0},
        }
    )


def prepare_task(output: Path) -> dict[str, Any]:
    """Make the built-in task below `output` in a process of its own, unless it exists; its measurements in task.json.

    Raises:
        BackendError: the process failed; the message ends with its output.
    """
    output.mkdir(parents=True, exist_ok=True)
    command = [_python(), "-m", "isocompute_torch.tasks", TASK]
    command += ["--family", FAMILY, "--set", DIFFICULTY, "--seed", str(SEED)]
    done = subprocess.run(command, cwd=output, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = done.stderr.strip() or f"exit code {done.returncode}"
        raise BackendError(
            f"the built-in task could not be prepared: {words}",
            "Run the command again; `isocompute backends torch` lists what the built-in runner needs.",
        )
    # The process has checked the file.
    return files.parse_json(files.read_text(output / TASK / "task.json", what="a task (JSON)"))["measured"]


def _python() -> str:
    """The interpreter that trains: the one named by PYTHON, else this one."""
    return os.environ.get("PYTHON") or sys.executable


def _require_torch() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing and not os.environ.get("PYTHON"):
        raise IsoComputeError(
            f"quickstart trains a tiny model and needs {' and '.join(missing)}: pip install 'isocompute[torch]' "
            "(in a clone: pip install -c constraints.txt '.[torch]')",
            "Without torch: isocompute quickstart --paper does the same with the paper's measurements.",
        )


def _check_budget(budget: str) -> None:
    from isocompute_sdk.specs import Budget

    asked = Budget.parse(budget)
    if asked.unit != "rollouts" or asked.amount < SMALLEST_BUDGET:
        raise SpecError(
            f"--budget {budget}; accepted: at least {SMALLEST_BUDGET:,} rollouts, pilot and plan together",
            f"Leave it out for {BUDGET}.",
        )


def _write(campaign: Campaign, outcome: Outcome) -> list[Path]:
    """The same plan for OpenRLHF, and the pictures."""
    study, folder = campaign.study, campaign.root
    script = outcome.plan.launch_script(
        "openrlhf",
        model=study.model,
        train_data=study.data.train,
        eval_data=study.data.validation,
        reward=study.data.reward,
        output_dir="runs/openrlhf",
        chat_template=False,
    )
    stages = ("study.yaml", "fits.json", "plan.json", "comparison.json", "refit.json")
    return [
        *(folder / name for name in stages),
        files.write_text(folder / "launch_openrlhf.sh", script, executable=True),
        *opt.save_pictures(outcome.plan, folder / "pictures" / "plan"),
        *opt.save_pictures(outcome.refitted, folder / "pictures" / "refit"),
    ]


def _report(campaign: Campaign, outcome: Outcome, measured: dict[str, Any]) -> None:
    """Print the decisions, what they cost, and the comparison."""
    from isocompute_sdk.cli.quickstart.outcome import describe_outcome

    say(
        f"base model: {measured['parameters']:,} parameters, right in {measured['validation']['pass_rate']:.0%} of "
        f"samples on {measured['validation']['problems']} held-out problems; "
        f"{measured['train']['problems']:,} training problems ({FAMILY}, {DIFFICULTY})"
    )
    say_decisions(campaign)
    say_spending(campaign)
    print_notes(note for note in outcome.notes if note.code in ("runs-given-up", "nothing-learned"))
    say()
    for line in describe_outcome(outcome):
        say(line)
