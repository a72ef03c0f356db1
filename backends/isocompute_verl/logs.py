"""What the logs of veRL mean: its file log, event files, consoles and Hydra configurations.

A logged step is one batch of B_p prompts and n samples each; ppo_mini_batch_size splits a batch into several optimiser
updates. The file log is emptied at every start, so that what came before a resume is lost there; event files keep every
attempt.

In the folder of our launch script logs/attempt-N.jsonl is what start N logged. veRL draws its best@k and worst@k by a
bootstrap with replacement, which their names say; the responses that it dumps are not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import numeric
from isocompute_sdk.ingest.formats.configuration import Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import (
    COLOURS,
    Attempt,
    Console,
    LogFormat,
    Printed,
    RunFolder,
    RunLog,
    ScalarSeries,
    Tag,
    one_per_step,
    printed_numbers,
    validation,
)
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest, record_of
from isocompute_sdk.run_folders.store import REQUEST_FILE
from isocompute_sdk.training.framework import request_document
from isocompute_verl.files import FILE_LOG, looks_like_dump, read_attempts
from isocompute_verl.flags import ACTOR, ROLLOUT, VALIDATION

REQUEST_DOCUMENT = request_document("verl")
RUN_FILES = ("logs/attempt-*.jsonl",)


def read_run(folder: Path) -> RunLog:
    """Everything that the run in a folder has logged; see `ingest.formats.log_format.RunFolder`."""
    run, form = REQUEST_DOCUMENT.load(folder / REQUEST_FILE).run, load("verl")
    logs = (log_of(folder, number) for number in starts(folder))
    attempts = tuple(one for path in logs if path.stat().st_size for one in read_attempts(path))
    notes = tuple(note for one in attempts for note in one.notes)
    return RunLog(run.run_id, folder, "verl", attempts, notes, dict(run.context()), framework=form)


def starts(run: Path) -> list[int]:
    """Numbers of the starts that have a log, ascending."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in (run / "logs").glob("attempt-*.jsonl"))


def log_of(run: Path, start: int) -> Path:
    """The log of one start."""
    return run / "logs" / f"attempt-{start}.jsonl"


def progress_of(run: Path) -> Progress | None:
    """How far a run is, from the last lines of its logs.

    veRL writes the line of a step after its checkpoint and evaluation: with that of the last step the run is over.
    """
    found = latest(
        part
        for attempt in reversed(starts(run))
        for line in last_lines(log_of(run, attempt))
        if (part := _progress(record_of(line))) is not None
    )
    if found is None or found.step < _last_step(run):
        return found
    return replace(found, ended="finished")


def _last_step(run: Path) -> float:
    """Update steps that the run was asked for; infinite where its request cannot be read."""
    try:
        return float(parse_json((run / REQUEST_FILE).read_text(encoding="utf-8"))["run"]["update_steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return math.inf


def _progress(record: Mapping[str, Any]) -> Progress | None:
    """What one line says; None if it is no line of veRL's logger."""
    step, data = record.get("step"), record.get("data")
    if not isinstance(step, int) or not isinstance(data, dict):
        return None
    return load("verl").progress(step, numeric(cast("dict[str, Any]", data)))


_NEXT = re.compile(r"(?:(?<![\w:/-])|(?<=\d))step:(\d+) - ")
"""Begins a step; a line may hold another one, as where a line end was lost."""
_BAR = re.compile(r"\r(?!.*[A-Za-z][^\s:]*:-?\d).*")
"""A progress bar behind a step; with a tag and a number it is the rest of a damaged line."""
_EVALUATED = re.compile(r"val[/-]|test_score|timing_s/testing")
_MEASURED = "(?:acc|reward|score)"


def _parse(line: str) -> Printed | None:
    """`step:N - tag:value - tag:value` (utils/logger/aggregate_logger.py)."""
    _, *steps = _NEXT.split(COLOURS.sub("", line))
    for step, said in zip(steps[::2], steps[1::2], strict=True):
        parts = [part.lstrip("- ") for part in _BAR.sub("", said).strip(" -").split(" - ")]
        values, others = printed_numbers((tag, text) for tag, _, text in (part.rpartition(":") for part in parts))
        # As of a clock time; few tags have a colon of their own.
        others |= {tag: text for tag, _, text in (part.partition(":") for part in parts) if ":" in text}
        others |= {"": "another step in the same line is left out"} if len(steps) > 2 else {}
        if values:
            # A line with an evaluation alone may stand before the update of the same number.
            return Printed(int(step), values, not all(map(_EVALUATED.match, values)), others)
    return None


def _fields(keys: Keys) -> Mapping[str, Said | None]:
    """`data.train_batch_size` and `ppo_mini_batch_size` both count prompts."""
    get, flag = keys.get, keys.flat.get
    batch, mini, epochs = "data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_epochs"
    kl = get(f"{ACTOR}.kl_loss_coef") if flag(f"{ACTOR}.use_kl_loss") else None
    if kl is None and flag("algorithm.use_kl_in_reward"):
        kl = get("algorithm.kl_ctrl.kl_coef")
    if kl is None and flag(f"{ACTOR}.use_kl_loss") is False:
        kl = Said(0.0, f"{keys.path}: {ACTOR}.use_kl_loss = False")
    staleness = get("async_training.staleness_threshold")
    # Where rollouts have GPUs of their own, these are not all. A script may leave the nodes to a variable of its shell.
    nodes = keys.number("trainer.nnodes") if "trainer.nnodes" in keys.flat else 1
    per_node = None if "rollout.n_gpus_per_node" in keys.flat else keys.number("trainer.n_gpus_per_node")
    gpus = None if nodes is None or per_node is None else nodes * per_node
    size = get(f"{ROLLOUT}.n")
    if size is None and flag("algorithm.adv_estimator") in (None, "gae") and flag(f"{ACTOR}.ppo_mini_batch_size"):
        # One sample of each prompt is the default, and what PPO is trained with.
        size = Said(1, f"{keys.path}: no {ROLLOUT}.n", default=True)
    return {
        "group_size": size,
        "problems_per_batch": get(batch),
        "seed": get("data.seed"),
        "gpus": keys.derived(gpus, "trainer.n_gpus_per_node", "trainer.nnodes"),
        "model": get("actor_rollout_ref.model.path"),
        "train_data": get("data.train_files"),
        "algorithm": keys.algorithm("algorithm.adv_estimator"),
        "learning_rate": get(f"{ACTOR}.optim.lr"),
        "kl_coef": kl,
        "entropy_coef": get(f"{ACTOR}.entropy_coeff"),
        "updates_per_batch": keys.updates(batch, mini, epochs),
        "max_tokens": get("data.max_response_length"),
        "max_prompt_tokens": get("data.max_prompt_length"),
        # What veRL trains with where its command does not say.
        "temperature": get(f"{ROLLOUT}.temperature")
        or Said(1.0, f"{keys.path}: no {ROLLOUT}.temperature", default=True),
        "top_p": get(f"{ROLLOUT}.top_p"),
        "filter": keys.switch("algorithm.filter_groups.enable", "dynamic", "none"),
        "off_policy": None if staleness is None else Said(f"staleness {staleness.value}", staleness.evidence),
        "eval_temperature": get(f"{VALIDATION}.temperature"),
        # Every release before the key evaluated one sample of each problem, as later ones do without it.
        "eval_samples": get(f"{VALIDATION}.n") or Said(1, f"{keys.path}: no {VALIDATION}.n", default=True),
    }


def _generated(keys: Keys) -> Said | None:
    """The recipe of DAPO generates batches of a size of their own, `train_batch_size` without one."""
    size, names = keys.number(f"{ROLLOUT}.n"), ("data.gen_batch_size", "data.train_batch_size")
    name = next((name for name in names if keys.number(name)), None)
    return None if size is None or name is None else keys.derived(size * (keys.number(name) or 0), f"{ROLLOUT}.n", name)


def _tests(log: RunLog) -> RunLog:
    """The evaluations of early releases under one name and at their updates.

    They log the one before training as `test_score/SET` and others as `val/test_score/SET`, a last one at the step
    after the last update.
    """
    return replace(log, attempts=tuple(map(_with_tests, log.attempts)))


def _with_tests(one: Attempt) -> Attempt:
    series: dict[str, ScalarSeries] = {}
    for tag, values in one.series.items():
        name = tag.removeprefix("val/") if tag.startswith("val/test_score/") else tag
        series[name] = one_per_step([series[name], values]) if name in series else values
    updates = [values.step_T for tag, values in series.items() if _UPDATE.match(tag)]
    last = max((float(step_T.max()) for step_T in updates if len(step_T)), default=0.0)
    for tag, values in series.items():
        if last and tag.startswith("test_score/") and len(values.step_T) and values.step_T[-1] == last + 1:
            series[tag] = replace(values, step_T=np.minimum(values.step_T, values.step_T.dtype.type(last)))
    return replace(one, series=series)


_UPDATE = re.compile(r"critic/|actor/")

FORMAT = LogFormat(
    name="verl",
    framework="veRL",
    signature=r"critic/(score|rewards)/mean|training/global_step|actor/(pg_loss|kl_coef)|val-(core|aux)/.+",
    tags=(
        validation(rf"val-core/(?P<set>.+)/{_MEASURED}/mean@(?P<k>\d+)", "avg@{k}"),
        validation(rf"val-(?:core|aux)/(?P<set>.+)/{_MEASURED}/best@(?P<k>\d+)/mean", "best@{k}:bootstrap"),
        validation(rf"val-(?:core|aux)/(?P<set>.+)/{_MEASURED}/worst@(?P<k>\d+)/mean", "worst@{k}:bootstrap"),
        validation(rf"val-(?:core|aux)/(?P<set>.+)/{_MEASURED}/maj@(?P<k>\d+)/mean", "maj@{k}:bootstrap"),
        validation(r"val-(?:core|aux)/(?P<set>.+)/reward_error/mean@\d+", "reward_error_share"),
        validation(r"timing_s/testing", "evaluation_seconds"),
        # Releases of 2024.
        validation(r"(?:val/)?test_score/(?P<set>.+)", "avg@{k}"),
        # critic/rewards/mean is the same with the KL penalty taken off.
        Tag("critic/score/mean", "train_reward"),
        Tag("actor/pg_loss", "loss"),
        Tag("critic/vf_loss", "value_loss"),
        Tag("actor/entropy", "entropy"),
        Tag("actor/kl_loss", "kl"),
        Tag("response_length/mean", "response_length"),
        Tag("response_length/clip_ratio", "truncated_share"),
        Tag("actor/grad_norm", "gradient_norm"),
        Tag("actor/lr", "learning_rate"),
        Tag("actor/pg_clipfrac", "clipped_share"),
        Tag("rollout_corr/kl", "sampler_kl"),
        Tag("rollout_corr/rollout_is_mean", "importance_weight_mean"),
        Tag("timing_s/step", "step_seconds"),
        Tag("perf/time_per_step", "step_seconds"),
        Tag("timing_s/gen", "sampling_seconds"),
    ),
    step="rollout_batches",
    one_unit=_tests,
    from_zero="rows",
    components=r"critic/(rewards|advantages|returns)/.+|training/.+|val-aux/.+",
    # Groups, whole ones despite the name, that were generated and not trained on: without a difference in reward, or
    # more than were needed (trainer/ppo/v1/replay_buffer.py). Logged only with updates that had some.
    filtered_groups=r"(?:.+/)?filter_groups/(?:evicted|discarded_surplus)_samples",
    configurations=(
        Configuration("verl", "actor_rollout_ref.rollout.n", _fields, generated=_generated),
        Configuration("verl", "actor_rollout_ref.actor.ppo_mini_batch_size", _fields, generated=_generated),
    ),
    generations_tag="train/num_gen_batches",
    store=FILE_LOG,
    console=Console((b"step:",), _parse),
    is_dump=looks_like_dump,
    run_folder=RunFolder(REQUEST_DOCUMENT.kind, RUN_FILES, read_run, progress_of),
)
