"""`isocompute run` for a study whose pilot is chosen while it goes on: the campaign from pilot to refit."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from isocompute_sdk.cli.shared import background, following
from isocompute_sdk.cli.shared.display import print_notes, print_plan
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.work_progress import WorkProgress, on_stderr, resumable
from isocompute_sdk.errors import IsoComputeError, PlanError, RecordError

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.campaign import Campaign, Outcome
    from isocompute_sdk.specs import ExecutorSpec, Study

STAGES = {
    "pilot": "pilot",
    "sweep": "sweep",
    "fit": "fitting",
    "allocate": "planning",
    "train": "training the plan",
    "compare": "comparing",
    "refit": "fitting again with the new run",
}
CHECK_REWARD = "Check the reward function on responses of the run; then change the study and rename it."
"""What to do about a run that has learned nothing."""


def note_changes(changes: Mapping[str, tuple[Any, Any]]) -> None:
    """Say what was edited in a study, on stderr."""
    from isocompute_sdk.campaigns.control import describe

    for field, (old, new) in changes.items():
        print(f"edited since the last start: {describe(field, old, new)}", file=sys.stderr)


def run_campaign(
    study: Study, file: Path, executor: ExecutorSpec, against: str | None, *, detach: bool, json: bool
) -> None:
    """Carry out the campaign of a study in its folder, or resume it, and report.

    Args:
        study: the study; its paths are relative to the current folder, or to that of a campaign beside its file.
        file: the study's file.
        executor: starts the runs.
        against: configuration to judge the plan against, such as n=16,bp=128.
        detach: let a controller in the background do it.
        json: print one JSON document.

    Raises:
        BackendError: a run failed, or all have learned nothing.
        RecordError: runs were given up or have learned nothing.
    """
    from isocompute_sdk.campaigns.campaign import Campaign
    from isocompute_sdk.campaigns.overview import campaign_around, lies_in_campaign, to_go_on
    from isocompute_sdk.planning.comparing import parse_configuration

    if against is not None:
        parse_configuration(against)
    folder, base = Path(study.output_dir) / study.name, Path.cwd()
    if (settings := campaign_around(file, study)) is not None:
        folder = base = file.parent
    elif lies_in_campaign(file, study) and folder.resolve() != file.parent.resolve():
        raise RecordError(
            f"{file} is the study of the campaign in {file.parent}; from here it would begin another in {folder}",
            f"To go on: {to_go_on(file.parent)}",
        )
    if detach:
        background.detach(study.name, folder, (), f"isocompute status {quote(str(folder))} --watch", json=json)
        return
    progress = WorkProgress()
    with resumable(), of_study(file):
        campaign = Campaign(
            study,
            folder,
            executor=executor,
            metric=f"avg@{study.evaluation.samples}",
            watch=lambda stage, statuses: progress.runs(STAGES[stage], statuses, lambda: following.final_steps(folder)),
            on_edit=note_changes,
            on_decision=telling(folder, json=json),
            base=base,
            fit_options={} if settings is None else settings.fit,
            plan_options={} if settings is None else settings.plan,
        )
        outcome = campaign.run()
    judged, refusal = None, None
    if against is not None:
        try:
            judged = campaign.judge(against)
        except PlanError as error:
            refusal = error  # What the campaign has done is told first.
    if json:
        told = {} if judged is None else {"against": judged.to_dict()}
        emit_json(
            {
                "kind": "run",
                "study": study.name,
                "plan": outcome.plan.to_dict(with_fits=False),
                "comparison": outcome.comparison.to_dict(),
                "report": following.write_page(folder, study, against=against)[0],
                "notes": [note.to_dict() for note in outcome.notes],
                **told,
            }
        )
    else:
        report_campaign(campaign, outcome)
        say(following.write_page(folder, study, against=against)[1])
        if judged is not None:
            say()
            for line in judged.summary().splitlines():
                say(line)
        say(f"next: isocompute status {quote(str(folder))}")
    bad = [note for note in outcome.notes if note.code in ("runs-given-up", "nothing-learned")]
    if bad:
        retry = "Run the command again to retry; finished runs are kept."
        raise RecordError(bad[0].message, retry if bad[0].code == "runs-given-up" else CHECK_REWARD)
    if refusal is not None:
        raise refusal


@contextmanager
def of_study(file: Path) -> Generator[None]:
    """Errors that name options which the study's file says for `isocompute run`, as keys of that file."""
    from isocompute_sdk.specs import Throughput

    keys = {f"--{name.replace('_', '-')}": f"throughput: {{{name}: ...}}" for name in Throughput.model_fields}
    keys |= {"--gpus": "hardware: {gpus: ...}", "--throughput FILE": "throughput: ..."}
    # Commands that a hint names keep their options.
    words = re.compile(rf"isocompute [^,;.]*|{'|'.join(map(re.escape, sorted(keys, key=len, reverse=True)))}")
    try:
        yield
    except IsoComputeError as error:
        hint = error.shell_hint or ""
        said = words.sub(lambda found: keys.get(found[0], found[0]), hint)
        error.shell_hint = said if said in ("", hint) else f"In {file}: {said}"
        # They would be added to the command.
        error.options = ()
        raise


def telling(folder: Path, *, json: bool) -> Callable[[str], object]:
    """Say what a campaign has decided so far and why; returns what says the decisions to come."""
    from isocompute_sdk.campaigns.pilot_rounds import read_decisions

    if json:
        return on_stderr
    for one in read_decisions(folder):
        say(one.reason)

    def tell(text: str) -> None:
        say(text)
        # The next one may be hours away.
        sys.stdout.flush()

    return tell


def report_campaign(campaign: Campaign, outcome: Outcome) -> None:
    """Print the plan, the prediction with its outcome, and what was spent."""
    from isocompute_sdk.campaigns.comparison import at_check
    from isocompute_sdk.campaigns.overview import overview
    from isocompute_sdk.run_folders import store

    say()
    print_plan(outcome.plan)
    say()
    say(outcome.comparison.summary())
    if checked := at_check(outcome.plan, outcome.comparison.run_id, store.read_journals(campaign.root)):
        say(f"{checked}. A campaign trains the whole plan without waiting for an approval.")
    elif outcome.plan.approval is not None and outcome.plan.approval.kind == "do-not":
        say("The plan was not approved; a campaign trains it anyway.")
    found = overview(campaign.root)
    if found is not None:
        say(f"spent: {following.by_kind(found)}")
    print_notes(note for note in outcome.notes if note.severity != "info")
