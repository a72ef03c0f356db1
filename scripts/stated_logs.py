"""What a log states, as a short reader of each format understands it; see `stated`."""

import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stated import Fields, Reader, Stated, cells, number, objects, value_of

Tags = Mapping[str, str]
"""Regular expression over a tag -> `metric on evaluation set`; those of updates are on `train`."""
VERL: Tags = {
    r"val-core/(.+)/acc/mean@(\d+)": r"avg@\2 on \1",
    "critic/score/mean": "train_reward on train",
    "actor/entropy": "entropy on train",
    "response_length/mean": "response_length on train",
    "timing_s/step": "step_seconds on train",
}
TINKER: Tags = {
    "test/env/all/reward/total": "avg@? on validation",
    "env/all/reward/total": "train_reward on train",
    "optim/lr": "learning_rate on train",
}
SKYRL: Tags = {
    "reward/avg_raw_reward": "train_reward on train",
    "policy/policy_loss": "loss on train",
    "timing/step": "step_seconds on train",
}
TRL: Tags = {
    "eval_reward": "avg@4 on validation",
    "eval_completions/mean_length": "response_length on validation",
    "eval_completions/clipped_ratio": "truncated_share on validation",
    "eval_runtime": "evaluation_seconds on validation",
    "reward": "train_reward on train",
    "loss": "loss on train",
    "entropy": "entropy on train",
    "completions/mean_length": "response_length on train",
    "completions/clipped_ratio": "truncated_share on train",
    "frac_reward_zero_std": "zero_variance_share on train",
    "reward_std": "group_reward_std on train",
    "grad_norm": "gradient_norm on train",
    "learning_rate": "learning_rate on train",
    "clip_ratio/region_mean": "clipped_share on train",
    "step_time": "step_seconds on train",
}
WANDB: Tags = {
    "train/reward": "train_reward on train",
    "train/frac_reward_zero_std": "zero_variance_share on train",
    "eval/reward": "avg@8 on validation",
}
PRIME: Tags = {
    r"eval/([^/]+)(?:/.+)?/avg@(\d+)": r"avg@\2 on \1",
    "train/agg/all/([^/]+/)?reward/mean": "train_reward on train",
    "optim/lr": "learning_rate on train",
    "optim/grad_norm": "gradient_norm on train",
}
SLIME: Tags = {
    r"eval/([^/]+?)-pass@(\d+)": r"best@\2 on \1",
    r"eval/([^/]+?)-truncated_ratio": r"truncated_share on \1",
    r"eval/([^/]+?)/response_len/mean": r"response_length on \1",
    r"eval/((?:(?!pass@)[^/])+)": r"avg@? on \1",
    "rollout/raw_reward": "train_reward on train",
    "rollout/response_len/mean": "response_length on train",
    "rollout/response_lengths": "response_length on train",
    "perf/rollout_time": "sampling_seconds on train",
}
SLIME_UPDATES: Tags = {
    "train/pg_loss": "loss on train",
    "train/grad_norm": "gradient_norm on train",
    "train/lr-pg_0": "learning_rate on train",
}
OPENRLHF: Tags = {
    r"eval/eval_(.+)_pass(\d+)": r"best@\2 on \1",
    "train/rollout/reward_mean": "train_reward on train",
    "train/policy_loss": "loss on train",
    "train/actor_lr": "learning_rate on train",
    "train/timing/step_total": "step_seconds on train",
}


def _add(found: Stated, step: float, values: Iterable[tuple[str, Any]], tags: Tags, later: int = 0) -> None:
    """The known tags of one record; those of updates `later` steps later."""
    found.steps.append(step)
    for tag, value in values:
        match, name = next(((m, name) for one, name in tags.items() if (m := re.fullmatch(one, tag))), (None, ""))
        if match is not None and value != "null":
            metric, _, place = match.expand(name).partition(" on ")
            found.points.append((("", metric, place, step + later * (place == "train")), {"value": value}))


def _record(found: Stated, row: Mapping[str, Any], values: object, tags: Tags, later: int = 0) -> None:
    step = value_of(row.get("step"))
    if isinstance(step, float) and isinstance(values, dict):
        _add(found, step, [(tag, value_of(value)) for tag, value in values.items()], tags, later)
    else:
        found.unread.append(str(row))


def of_history(text: str) -> Stated:
    """A history as W&B exports it, a row for each call."""
    found = Stated()
    rows = [*cells(text, found)]
    numbers = {name for row in rows for name, cell in row.items() if isinstance(number(cell), float)}
    found.understood &= {"_step", "_runtime", "train/global_step", *WANDB} <= numbers
    for row in rows:
        _record(found, {"step": row.get("train/global_step")}, row, WANDB)
    return found


def of_verl(text: str) -> Stated:
    """JSON lines of veRL's file logger."""
    found = Stated()
    for row in objects(text, found):
        _record(found, row, row.get("data"), VERL)
    return found


def of_tinker(text: str) -> Stated:
    """`metrics.jsonl`; updates are counted from 0."""
    found = Stated()
    for row in objects(text, found):
        _record(found, row, row, TINKER, later=1)
    return found


def of_prime(text: str) -> Stated:
    """`metrics.jsonl` of prime-rl with one solver; updates are counted from 0, if one is there at 0."""
    found, before = Stated(), dict[Any, dict[str, Any]]()
    for row in objects(text, found):
        _record(found, row, row, PRIME, later=1)
        same = before.setdefault(value_of(row.get("step")), {})
        found.again |= any(same.setdefault(name, value) != value for name, value in row.items())
    alone = len({*re.findall(r"/([^/]*/)?reward/mean", text)}) < 2
    found.understood = alone and any(place == "train" and step == 1 for (_, _, place, step), _ in found.points)
    return found


def of_journal(text: str) -> Stated:
    """`metrics.jsonl` of a run of ours, whose first line says n and B_p."""
    found, sizes = Stated(), Fields()
    for row in objects(text, found):
        place = (row.get("eval_set") or "validation") if row.get("kind") == "evaluation" else "train"
        # Rollouts, C = n B_p steps, say the step of a record without one.
        step = row.get("step", value_of(row.get("rollouts")) / 512 if row.get("rollouts") else 0)
        if row.get("kind") == "run":
            sizes = {name: value_of(row[name]) for name in ("group_size", "problems_per_batch") if row.get(name)}
        elif row.get("kind") in ("evaluation", "step"):
            if not isinstance(step, int | float) or not isinstance(row.get("metrics"), dict):
                found.unread.append(str(row))
                continue
            rollouts = {"rollouts": value_of(row["rollouts"])} if "rollouts" in row else {}
            for metric, value in row["metrics"].items():
                fields = {"value": value_of(value), **sizes, **rollouts}
                found.points.append(((str(row.get("run_id")), metric, str(place), float(step)), fields))
    return found


def of_trl(text: str) -> Stated:
    """`trainer_state.json`."""
    found = Stated()
    state = next(objects(text.replace("\n", " "), found), None)
    history = state.get("log_history") if state else None
    for row in history if isinstance(history, list) else []:
        if isinstance(row, dict):
            _record(found, row, row, TRL)
        else:
            found.unread.append(str(row))
    return found


Records = list[tuple[float, list[tuple[str, Any]]]]
"""Step, and tags with their values."""


def add_verl(found: Stated, records: Records) -> None:
    """Records in tags of veRL."""
    for step, values in records:
        _add(found, step, values, VERL)


def add_skyrl(found: Stated, records: Records) -> None:
    """Records in tags of SkyRL; the largest k of `pass_at_k` says the samples of an evaluation set."""
    tags = {"eval/([^/]+)/avg_score": r"avg@? on \1", "eval/all/avg_score": "avg@? on validation", **SKYRL}
    measured = {tag for _, values in records for tag, value in values if isinstance(value, float)}
    samples = (match for tag in measured if (match := re.fullmatch(r"eval/([^/]+)/pass_at_(\d+)", tag)))
    for match in sorted(samples, key=lambda match: int(match[2])):
        place = "validation" if match[1] == "all" else match[1]
        tags[f"eval/{re.escape(match[1])}/avg_score"] = f"avg@{match[2] if int(match[2]) > 1 else '?'} on {place}"
    for step, values in records:
        _add(found, step, values, dict(reversed(tags.items())))


def add_slime(found: Stated, records: Records) -> None:
    """Records of slime with two updates in each rollout, all counted from 0; a first evaluation is before it."""
    first: dict[str, Any] = {}
    for step, values in records:
        evaluated = [one for one in values if one[0].startswith("eval/") and step == 0]
        # A second one at 0 was after the first rollout, if it is no copy.
        before = {tag for tag, value in evaluated if first.setdefault(tag, value) == value}
        _add(found, step + 1, [one for one in values if one[0] not in before], SLIME)
        _add(found, step, [one for one in values if one[0] in before], SLIME)
        if step % 2:
            _add(found, (step + 1) / 2, values, SLIME_UPDATES)
    # Four rollouts say how many updates each has.
    found.understood = max((key[3] for key, _ in found.points if key[1] == "train_reward"), default=0) > 3


def add_openrlhf(found: Stated, records: Records, known: str = "?") -> None:
    """Records in tags of OpenRLHF; pass1 is the mean of as many samples as the largest pass<k> says, or as `known`."""
    measured = {tag for _, values in records for tag, value in values if isinstance(value, float)}
    samples = [
        (match[1], int(match[2])) for tag in measured if (match := re.fullmatch(r"eval/eval_(.+)_pass(\d+)", tag))
    ]
    largest = dict(sorted(samples, key=lambda one: one[1]))
    names = {
        f"eval/eval_{re.escape(name)}_pass1": f"avg@{k if k > 1 else known} on {name}" for name, k in largest.items()
    }
    for step, values in records:
        _add(found, step, values, {**names, **OPENRLHF})


def uncoloured(text: str) -> str:
    """A console without its colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def of_printed(add: Callable[[Stated, Records], None], begins: str, before: Tags) -> Callable[[str], Stated]:
    """Lines with a kind, a step and a dict, for which `begins` has groups; `before` stands in front of the tags."""

    def read(text: str) -> Stated:
        found, records = Stated(), Records()
        for line in uncoloured(text).split("\n"):
            parts = iter(re.split(begins, line)[1:])
            for kind, step, said in zip(parts, parts, parts, strict=True):
                pairs = PAIR.findall(said.partition("}")[0] + "}" * ("}" in said))
                records.append((float(step), [(before[kind] + tag, number(value)) for tag, value in pairs]))
        add(found, records)
        return found

    return read


def of_verl_console(text: str) -> Stated:
    """Lines `step:N - tag:value - tag:value`; several may stand in one line."""
    found, records = Stated(), Records()
    for line in uncoloured(text).split("\n"):
        for part in re.split(r"(?=(?<![\w:/-])step:\d+ - )|(?<=\d)(?=step:\d+ - )", line)[1:]:
            step, *values = part.rstrip("\r -").split(" - ")
            pairs = [value.strip("- ").rpartition(":") for value in values]
            said = [(tag, number(value)) for tag, _, value in pairs if value]
            # A line without any number is no line of a step.
            if any(isinstance(value, float) for _, value in said):
                records.append((float(step[5:]), said))
    add_verl(found, records)
    return found


def of_skyrl_console(text: str) -> Stated:
    """`Step N:` and a printed dict."""
    found, records = Stated(), Records()
    for part in re.split(r"(?= - Step \d+: *\n)", uncoloured(text))[1:]:
        step = re.match(r" - Step (\d+)", part)
        pairs = PAIR.findall(part.partition("}")[0] + "}")
        records.append((float(step[1]) if step else 0.0, [(tag, number(value)) for tag, value in pairs]))
    add_skyrl(found, records)
    return found


def of_trl_console(text: str) -> Stated:
    """Rows of a trainer, whose epochs or bars say their steps; if these or the order disagree, nothing is sure."""
    found, unplaced = Stated(), False
    for bar, row in re.findall(r"(?:\| (\d+)/12 \[)?[^{|]*(\{'[^{}\n\r]*\})", uncoloured(text)):
        pairs = [(tag, number(value)) for tag, value in PAIR.findall(row)]
        epoch = dict(pairs).get("epoch")
        step = round(epoch / EPOCH, 6) if isinstance(epoch, float) and math.isfinite(epoch) else float(bar or -1)
        if step % 1 or step not in range(13) or (bar and int(bar) != step) or step < max(found.steps, default=0):
            return Stated(understood=False)
        _add(found, step, pairs, TRL)
        unplaced |= not bar
    # Of two rows, one without its bar and one cut, nothing says which is which.
    # So it is with a second start, which may stand anywhere.
    found.understood = not (unplaced and re.search(r"\{'[^{}]*(\{|\||$)", text)) and text.count("Running training") < 2
    return found


PAIR = re.compile(r"'([^'\n]+)': '?([^',}\n]+)'?(?=[,}])")
"""An entry of a printed dict."""
EPOCH = 0.0379746835443038 / 12
"""Of one update of the recorded run of TRL."""


def of_events(add: Callable[[Stated, Records], None]) -> Reader:
    """A reader of event files: a record counts if the clean file has it, checksums included."""

    def read(after: bytes, clean: bytes) -> Stated:
        found, records, whole = Stated(), Records(), {*_records(clean)}
        for record in _records(after):
            if record not in whole:
                found.unread.append(f"{len(record)} bytes")
                continue
            event = dict(_fields(record[12:-4]))
            values = [dict(_fields(value)) for _, value in _fields(event.get(5, b""))]
            pairs = [(value[1].decode(), float(value[2])) for value in values if 2 in value]
            records.append((float(event.get(2, 0)), pairs))
        add(found, records)
        return found

    return read


def of_wandb(after: bytes, clean: bytes) -> Stated:
    """A `.wandb` file of one block: a chunk counts if the clean file has it, checksum included."""

    def chunks(data: bytes) -> Iterator[bytes]:
        at = 7
        while at < len(data):
            size = 7 + struct.unpack("<H", data[at + 4 : at + 6].ljust(2, b"\xff"))[0]
            yield data[at : at + size]
            at += size

    found, whole = Stated(), {*chunks(clean)}
    for chunk in chunks(after):
        if chunk not in whole:
            found.unread.append(f"{len(chunk)} bytes")
            continue
        for _, history in (one for one in _fields(chunk[7:]) if one[0] == 2):
            items = [dict(_fields(item)) for kind, item in _fields(history) if kind == 1]
            row = {(one.get(2) or one[1]).decode(): json.loads(one[16]) for one in items if 16 in one}
            _record(found, {"step": row.get("train/global_step")}, row, WANDB)
    return found


def of_mlflow(text: str) -> Stated:
    """A metric: lines of milliseconds, value and step."""
    found = Stated()
    for line in filter(str.strip, text.split("\n")):
        parts = line.split()
        try:
            time, value, step = float(parts[0]), float(parts[1]), float(int(parts[2]))
        except (ValueError, IndexError, OverflowError):
            step, time, value = 0.0, 0.0, 0.0
        # A step like a time was one, before two lines became one.
        if len(parts) in (3, 5) and step < time:
            found.points.append((("", "avg@4", "gsm8k", step), {"value": value if math.isfinite(value) else math.nan}))
        else:
            found.unread.append(line)
    return found


def of_parameter(text: str) -> Stated:
    """The group size of a run of MLflow with three values."""
    try:
        size = float(text)
    except ValueError:
        return Stated(understood=False)
    values = [(step, {"value": step / 20, "group_size": size}) for step in (0.0, 5.0, 10.0)]
    return Stated([(("", "avg@4", "gsm8k", step), fields) for step, fields in values])


def _records(data: bytes) -> Iterator[bytes]:
    """Records of an event file; what does not fit its length comes as one."""
    at = 0
    while at < len(data):
        size = 16 + struct.unpack("<Q", data[at : at + 8].ljust(8, b"\xff"))[0]
        yield data[at : at + size]
        at += size


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers of a protobuf message with their values."""

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return value

    at = 0
    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
            continue
        size, kind = {1: (8, "<d"), 5: (4, "<f")}.get(tag & 7, (0, ""))
        size = size or varint()
        part, at = message[at : at + size], at + size
        yield tag >> 3, struct.unpack(kind, part)[0] if kind else part
