"""What the logs of prime-rl mean: `metrics.jsonl` of trainer and orchestrator, `rl.json` and `orchestrator.json`.

Trainer and orchestrator each write a row for every step into one file; in W&B each has a run of its own. Their batch
counts rollouts; with a batch that is measured in tokens it varies, and every step logs how many there were. Keys have
changed from release to release: known are those of 2025 (`reward/mean`, `reward/all/mean`) and of 2026
(`train/agg/...`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from isocompute_sdk.ingest.attempts import attempts_from_rows, numbers_of
from isocompute_sdk.ingest.formats.configuration import Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import LogFormat, LogStore, RunLog, Tag, validation
from isocompute_sdk.ingest.tables import first_objects, read_objects

_OF_TINKER = ("env/", "test/env/", "progress/done_frac", "progress/batch")
"""tinker-cookbook writes a file of the same name."""
_MARKS = ("train/agg/", "progress/ckpt_step", "optim/", "perf/", "scheduler/", "batch/")


def _is_metrics(path: Path) -> bool:
    if path.name != "metrics.jsonl":
        return False
    keys = [key for row in first_objects(path) if "step" in row for key in row]
    return any(key.startswith(_MARKS) for key in keys) and not any(key.startswith(_OF_TINKER) for key in keys)


def _read(paths: Sequence[Path], name: str) -> RunLog:
    """All rows, those of one step together: a row of the other process does not begin anew."""
    rows, lines, notes = read_objects(paths[0])
    numbers, damaged = numbers_of(paths[0], rows, lines, ("step",))
    steps: list[float] = []
    values: list[dict[str, float]] = []
    latest: dict[float, dict[str, float]] = {}
    for own in numbers:
        step = own.pop("step", None)
        if step is None:
            continue
        if step in latest and all(latest[step].get(key, value) == value for key, value in own.items()):
            latest[step].update(own)
        else:
            steps.append(step)
            values.append(own)
            latest[step] = own
    attempts = attempts_from_rows(paths[0], steps, values)
    return RunLog(name, paths[0], "prime-rl", attempts, (*notes, *damaged))


def _fields(keys: Keys) -> Mapping[str, Said | None]:
    """`batch_size` counts rollouts, in `rl.json` under the orchestrator."""
    prefix = "orchestrator." if any(key.startswith("orchestrator.") for key in keys.flat) else ""
    sizes = (f"{prefix}group_size", f"{prefix}rollouts_per_example")
    size = next((number for name in sizes if (number := keys.number(name))), None)
    batch, by_tokens = keys.number(f"{prefix}batch_size"), keys.number(f"{prefix}token_batch_size")
    problems = batch / size if batch and size and not by_tokens else None
    get = keys.get
    # How many steps inference may be ahead of training; 0 is synchronous.
    ahead = get(f"{prefix}max_async_level", "max_async_level", "trainer.max_async_level")
    return {
        "group_size": get(*sizes),
        "problems_per_batch": keys.derived(problems, f"{prefix}batch_size", *sizes),
        "seed": get(f"{prefix}seed"),
        "model": get(f"{prefix}model.name", "model.name"),
        "learning_rate": get("trainer.optim.lr", "optim.lr"),
        "max_tokens": get(f"{prefix}sampling.max_tokens"),
        "temperature": get(f"{prefix}sampling.temperature"),
        "off_policy": None if ahead is None else Said(f"staleness {ahead.value}", ahead.evidence),
    }


def _fields_of_orchestrator(keys: Keys) -> Mapping[str, Said | None]:
    """As `_fields`; a file of another name may mean something else by so plain a key."""
    found = _fields(keys)
    return found if keys.path.name.startswith("orch") else dict.fromkeys(found)


FORMAT = LogFormat(
    name="prime-rl",
    framework="prime-rl",
    signature=r"train/agg/(effective|all)/.+|progress/(ckpt_step|total_problems)|scheduler/async_level|mismatch_kl/(all/)?mean",
    tags=(
        validation(r"eval/(?P<set>[^/]+)(?:/.+)?/avg@(?P<k>\d+)", "avg@{k}"),
        Tag(r"train/agg/all/(?:[^/]+/)?reward/mean", "train_reward"),
        Tag(r"train/agg/effective/(?:[^/]+/)?reward/mean", "train_reward"),
        Tag("reward/all/mean", "train_reward"),
        Tag("reward/mean", "train_reward"),
        Tag("entropy/all/mean", "entropy"),
        Tag("entropy/mean", "entropy"),
        Tag("is_truncated/all/mean", "truncated_share"),
        Tag("is_truncated/mean", "truncated_share"),
        Tag(r"optim/grad_norm", "gradient_norm"),
        Tag("optim/lr", "learning_rate"),
        Tag("decode_len/all/mean", "response_length"),
        Tag("completion_len/mean", "response_length"),
        Tag("seq_len/mean", "response_length"),
        Tag("time/step", "step_seconds"),
    ),
    step="rollout_batches",
    components=r"(train|eval)/.+/reward/(?!mean).+|reward/(?!(all/)?mean$).+|metrics/.+|solve_(all|none)/?.*",
    from_zero="updates",
    update_steps="step",
    step_key="step",
    problems_tag="progress/problems",
    batch_tag="progress/samples",
    rollouts_tag="progress/samples",
    configurations=(
        Configuration("prime-rl", "orchestrator.batch_size", _fields),
        Configuration("prime-rl", "rollouts_per_example", _fields),
        Configuration("prime-rl", "orchestrator.group_size", _fields),
        Configuration("prime-rl", "group_size", _fields_of_orchestrator),
    ),
    store=LogStore("prime-rl", _is_metrics, lambda path: path.parent, _read),
)
