"""Damage files at random and hand them to the readers: every one is read, or refused in words.

    python scripts/fuzz.py --seconds 600 --seed 0

takes a file that reads well (tables, logs of each framework and of our runs, event files, W&B, MLflow,
`training_args.bin`, saved plans and fits, studies), changes bytes, lines or JSON values of it, and reads it
(`fuzz_guided.py` goes on from those that reach new code). Printed at the end: damaged files by kind, how many were
refused, and every one of these, with the file kept under `--keep`:

- an exception that is no IsoComputeError,
- a file that takes longer than `SECONDS`,
- a saved document that was changed and is read as another one without a word,
- a table or log that is read silently different from what it states.

A changed digit makes another valid file, and a cut between two records cannot be seen. So a table or log is compared
with what the damaged file itself states, as a short reader of the standard library understands it (`stated.py`,
`stated_logs.py`). Silently different means one of these:

- a value in the `RunSet` that the file does not state for this run, step, metric and evaluation set, n and B_p; no note
  excuses it;
- a value of a known column or tag, or a line, that the file states and the `RunSet` lacks, without a note in
  `stated.EXCUSES`.

If a step is stated several times, as after a resume, the last one counts, and steps beyond a resume may be given up.
Without repeats the order of lines says nothing. Files that the short reader does not understand, such as one without
its header, are counted as unjudged.

Parquet is left out: polars ends the process where a damaged length asks for more memory than there is. So are packed
files and archives, which are refused by their names and not opened; `training_args.bin` is one that is.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import stated as naive
import stated_logs as logs
import written

import isocompute_sdk as iso

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "tests/unit/ingest/data"
SECONDS, MEMORY = 10, 6 * 2**30
"""A file may take this long on the processor, whatever else the machine does; a process may map this much."""
WORDS = "nan inf -1 0 1e400 1e-400 true null n step avg@4 =cmd() ../../x $(id) 1_000 12:00 2026-01-01 1,5 8".split()  # noqa: SIM905
WORDS += ["", "9" * 400, "\0", "\x1b[31m", "'", '"', ",", "{", "[", "\ufffd", "\ufeff", "\uff11", "\n", "\r"]


GOOD = ("read", "refused", "unjudged")
SHOWN = 3
"""Files that are kept of one sort."""


class Slow(BaseException):
    """Not an Exception: nothing may swallow it."""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The file with one to four changes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = data.splitlines(keepends=True)
        at = rng.randrange(len(data) + 1)
        match rng.randrange(11):
            case 0:
                data = data[:at]
            case 1 if data:
                data = data[: at - 1] + bytes([rng.randrange(256)]) + data[at:]
            case 2:
                data = data[:at] + rng.choice(WORDS).encode() + data[at + rng.randrange(8) :]
            case 3 if lines:
                del lines[rng.randrange(len(lines))]
                data = b"".join(lines)
            case 4 if lines:
                lines.insert(rng.randrange(len(lines)), rng.choice(lines))
                data = b"".join(lines)
            case 5 if len(lines) > 1:
                rng.shuffle(lines)
                data = b"".join(lines)
            case 6:
                end = at + rng.randrange(200)
                data = data[:at] + data[end:]
            case 7:
                data = data[:at] + data[at : at + 200] * rng.randrange(1, 4) + data[at:]
            case 8 if len(lines) > 1:
                first = rng.randrange(len(lines) - 1)
                lines[first] = lines[first].rstrip(b"\r\n")
                data = b"".join(lines)
            case 9 if len(lines) > 1:
                rest = lines[1:]
                rng.shuffle(rest)
                data = b"".join([lines[0], *rest])
            case _:
                data = changed_value(data, rng)
    return data


def changed_value(data: bytes, rng: random.Random) -> bytes:
    """One value of a JSON document, or one cell of a table, replaced by a word."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        cells = data.split(b",")
        cells[rng.randrange(len(cells))] = rng.choice(WORDS).encode()
        return b",".join(cells)
    place = document
    while isinstance(place, dict | list) and place:
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        if not isinstance(place[key], dict | list) or rng.random() < 0.1:
            place[key] = rng.choice([*WORDS, None, True, -1, 0, 1e308, [], {}, 2**70])
            break
        place = place[key]
    return json.dumps(document).encode()


class Kind(NamedTuple):
    """A file that reads well."""

    path: Path
    inside: str
    """The file below `path` to damage; empty for `path` itself."""
    read: Callable[[Path], Any]
    stated: naive.Reader | None = None
    """What a damaged file states; None for a kind whose values are not compared."""
    sealed: bool = False
    """Whether a changed one must be refused."""


def printed(state: Path) -> str:
    """A history as a trainer prints it, behind progress bars."""
    rows: list[dict[str, Any]] = json.loads(state.read_text())["log_history"]
    bars = [f"\r 8%|8  | {row.pop('step')}/12 [00:04<00:04,  1.46s/it]  \r{row}" for row in rows]
    return "\n".join(["***** Running training *****", "  Total optimization steps = 12", *bars, ""])


def sized(path: Path, problems: int = 4) -> Any:
    """A log that says no n and B_p."""
    return iso.read(path, set={"group_size": 4, "problems_per_batch": problems})


of_skyrl = partial(sized, problems=96)
"""The recorded run of SkyRL has 384 rollouts in a batch."""


def of_two_runs(path: Path) -> Any:
    """A chart of W&B, which says no n and B_p of its runs."""
    return iso.read(path, runs={run: {"n": 4, "bp": 4} for run in ("sun-3", "sea - 4")})


def kinds(folder: Path) -> dict[str, Kind]:
    """Every kind by its name, with the files that it needs in a folder."""
    runs = iso.read(ROOT / "docs/examples/runs.csv")
    fits = iso.fit(runs)
    plan = iso.Planner(fits).allocate("900k")
    fits.save(folder / "fits.json")
    plan.save(folder / "plan.json")
    shutil.copy(ROOT / "docs/examples/runs.csv", folder)
    runs.to_polars().write_ndjson(folder / "runs.jsonl")
    (folder / "tinker").mkdir()
    for name in ("metrics.jsonl", "config.json"):
        shutil.copy(LOGS / "tinker" / name, folder / "tinker")

    (folder / "printed").mkdir()
    shutil.copy(LOGS / "trl/args.json", folder / "printed")
    (folder / "printed/train.log").write_text(printed(LOGS / "trl/trainer_state.json"), newline="")

    found = {
        "plan": Kind(folder / "plan.json", "", iso.Plan.load, sealed=True),
        "fits": Kind(folder / "fits.json", "", iso.Fits.load, sealed=True),
        "csv": Kind(folder / "runs.csv", "", iso.read, naive.of_text(naive.of_csv)),
        "jsonl": Kind(folder / "runs.jsonl", "", iso.read, naive.of_text(naive.of_jsonl)),
        "TRL state": Kind(LOGS / "trl", "trainer_state.json", iso.read, naive.of_text(logs.of_trl)),
        "TRL console": Kind(folder / "printed", "train.log", iso.read, naive.of_text(logs.of_trl_console)),
        "TRL arguments": Kind(LOGS / "trl", "args.json", iso.read),
        "training_args.bin": Kind(LOGS / "trl_1_16/checkpoint-6", "training_args.bin", iso.read),
        "veRL file log": Kind(LOGS / "verl/math", "qwen.jsonl", sized, naive.of_text(logs.of_verl)),
        "veRL console": Kind(LOGS / "verl/console.txt", "", iso.read, naive.of_text(logs.of_verl_console)),
        "tinker": Kind(folder / "tinker", "metrics.jsonl", iso.read, naive.of_text(logs.of_tinker)),
        "SkyRL console": Kind(LOGS / "skyrl/console.txt", "", of_skyrl, naive.of_text(logs.of_skyrl_console)),
    }
    for add, name, read in ((logs.add_skyrl, "skyrl", of_skyrl), (logs.add_verl, "verl", sized)):
        (events,) = (LOGS / name).rglob("events.out*")
        (folder / name).mkdir()
        shutil.copy(events, folder / name)
        found[f"events of {name}"] = Kind(folder / name, events.name, read, logs.of_events(add))
    found |= of_others(folder / "others", runs)
    for path in sorted((ROOT / "specs").glob("*.yaml")):
        found[f"study {path.stem}"] = Kind(path, "", iso.load_study)
    return found


def of_others(folder: Path, runs: iso.RunSet) -> dict[str, Kind]:
    """Kinds whose files are written here: of W&B, MLflow, frameworks without recorded files, and of our own runs."""

    def new(name: str) -> Path:
        (folder / name).mkdir(parents=True)
        return folder / name

    def alone(file: Path, read: Callable[[Path], Any], stated: Callable[[str], naive.Stated]) -> Kind:
        return Kind(file, "", read, naive.of_text(stated))

    def within(file: Path, read: Callable[[Path], Any], stated: naive.Reader | None = None, up: int = 0) -> Kind:
        top = file.parents[up]
        return Kind(top, str(file.relative_to(top)), read, stated)

    mlflow = written.mlflow(new("mlflow"))
    other = written.tables(runs, ROOT / "docs/examples/runs.csv", new("tables"))
    journal, launched = (written.run_folder(new(f"run of {name}"), name) for name in ("torch", "openrlhf"))
    printed = r"(Global step|global_step) (\d+)(?:: |, eval_metrics: )\{"
    slime = logs.of_printed(logs.add_slime, r"(?:^|[\s\]-])(rollout|eval) (\d+): \{", {"rollout": "", "eval": ""})
    kinds = {"Global step": "train/", "global_step": "eval/"}
    openrlhf = logs.of_printed(logs.add_openrlhf, printed, kinds)
    # A request says how many samples an evaluation has.
    requested = logs.of_printed(partial(logs.add_openrlhf, known="4"), printed, kinds)
    return {
        "csv with semicolons": alone(other[";"], iso.read, partial(naive.of_csv, delimiter=";")),
        "csv with tabs": alone(other["\t"], iso.read, partial(naive.of_csv, delimiter="\t")),
        "csv, long": alone(other["long"], iso.read, naive.of_long),
        "W&B chart": alone(written.wandb_chart(new("chart")), of_two_runs, naive.of_chart),
        "W&B history": alone(written.wandb_history(new("history")), sized, logs.of_history),
        "W&B run": within(written.wandb(new("wandb")), sized, logs.of_wandb),
        "MLflow metric": within(
            mlflow / "metrics/val-core/gsm8k/acc/mean_at_4", iso.read, naive.of_text(logs.of_mlflow), up=4
        ),
        "MLflow parameter": within(
            mlflow / "params/actor_rollout_ref/rollout/n", iso.read, naive.of_text(logs.of_parameter), up=3
        ),
        "MLflow meta": within(mlflow / "meta.yaml", iso.read, naive.of_text(lambda text: logs.of_parameter("4"))),
        "slime console": alone(written.slime_console(new("slime")), sized, slime),
        "events of slime": within(written.slime_events(new("slime events")), sized, logs.of_events(logs.add_slime)),
        "prime-rl": within(written.prime_rl(new("prime-rl")), iso.read, naive.of_text(logs.of_prime)),
        "OpenRLHF console": alone(written.openrlhf_console(new("openrlhf") / "console.txt"), sized, openrlhf),
        "events of OpenRLHF": within(
            written.openrlhf_events(new("openrlhf events")), sized, logs.of_events(logs.add_openrlhf)
        ),
        "run of OpenRLHF": within(launched, iso.read, naive.of_text(requested)),
        "run of OpenRLHF, request": within(launched.with_name("request.json"), iso.read),
        "run of ours": within(journal, iso.read, naive.of_text(logs.of_journal)),
    }


def tried(read: Callable[[Path], Any], path: Path) -> tuple[str, Any]:
    """What came of reading: refused, read, slow, or the place of a raw exception; and what was read."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return "read", read(path)
    except iso.IsoComputeError:
        return "refused", None
    except Slow:
        return "slow", None
    except MemoryError:
        return "too much memory", None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # panics of Rust are no Exception
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno} {str(error)[:80]}", None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def judged(kind: Kind, clean: Any, value: Any, before: bytes, after: bytes) -> str:
    """What came of a file that was read: `read`, `unjudged`, or in which way it is silently different."""
    if kind.sealed:
        return "another document, without a word" if value != clean else "read"
    if kind.stated is None:
        return "unjudged"
    stated = kind.stated(after, before)
    if not stated.understood:
        return "unjudged"
    (run, *_) = clean.run_ids
    return naive.difference(stated, value, {note.code for note in clean.notes}, run) or "read"


def checked(name: str, kind: Kind) -> Any:
    """What a clean file holds; it has to read well, and as it is stated."""
    outcome, value = tried(kind.read, kind.path)
    content = (kind.path / kind.inside).read_bytes()
    if outcome == "read":
        outcome = judged(kind, value, value, content, content)
    if outcome not in ("read", "unjudged"):
        raise SystemExit(f"{name}: the clean file is {outcome}")
    return value


class Tally:
    """What came of all files of all kinds."""

    def __init__(self, keep: Path) -> None:
        self.keep = keep
        self.counts: dict[str, Counter[str]] = {}
        self.bad: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, kind: Kind, outcome: str, content: bytes) -> None:
        """Count one file; print and keep it if it is bad."""
        self.counts.setdefault(name, Counter())[outcome if outcome in GOOD else "bad"] += 1
        if outcome in GOOD:
            return
        sort = name, outcome.partition(":")[0]
        self.bad[sort] += 1
        if self.bad[sort] <= SHOWN:
            self.keep.mkdir(parents=True, exist_ok=True)
            place = self.keep / f"{name.replace(' ', '-')}-{sum(self.bad.values())}-{(kind.path / kind.inside).name}"
            place.write_bytes(content)
            print(f"{name}: {outcome[:400]}\n    {place}", flush=True)

    def print(self) -> None:
        """Print the table of kinds."""
        for kind, count in sorted(self.counts.items()):
            numbers = "".join(f"{count[name]:7} {name}" for name in (*GOOD, "bad"))
            print(f"{kind:24} {sum(count.values()):6} files{numbers}")
        files = sum(sum(count.values()) for count in self.counts.values())
        print(f"{files} files, {sum(self.bad.values())} bad of {len(self.bad)} sorts")
        print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most", flush=True)


def outcome_of(kind: Kind, clean: Any, target: Path, before: bytes, after: bytes) -> str:
    """Put a damaged file to `target` and read it."""
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir()
    (shutil.copytree if kind.path.is_dir() else shutil.copy)(kind.path, target)
    (target / kind.inside).write_bytes(after)
    outcome, value = tried(kind.read, target)
    return judged(kind, clean, value, before, after) if outcome == "read" else outcome


def limit() -> None:
    """Let no file take more than `SECONDS` and `MEMORY`."""

    def alarm(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGPROF, alarm)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options of a fuzzer."""
    found = argparse.ArgumentParser(description=(description or "").split("\n", maxsplit=1)[0])
    found.add_argument("--seconds", type=float, default=60)
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--kinds", nargs="*", default=[""], help="only kinds that begin so")
    found.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    return found


def main() -> int:
    """Fuzz until the time is over."""
    options = parser(__doc__).parse_args()
    rng = random.Random(options.seed)
    limit()
    tally = Tally(options.keep)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        known = {name: kind for name, kind in kinds(folder).items() if name.startswith(tuple(options.kinds))}
        clean = {name: checked(name, kind) for name, kind in known.items()}
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            name = rng.choice(list(known))
            kind = known[name]
            before = (kind.path / kind.inside).read_bytes()
            after = damaged(before, rng)
            tally.add(
                name, kind, outcome_of(kind, clean[name], folder / "damaged" / kind.path.name, before, after), after
            )
    tally.print()
    return 1 if tally.bad else 0


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "100")
    sys.exit(main())
