"""Damage files at random and hand them to the readers: every one is read, or refused in words.

    python scripts/fuzz.py --seconds 600 --seed 0

takes a file that reads well (tables, logs of each framework, event files, `training_args.bin`, saved plans and fits,
studies), changes bytes, lines or JSON values of it, and reads it. Printed at the end: damaged files by kind, how many
were refused, and every one of these, with the file kept under `--keep`:

- an exception that is no IsoComputeError,
- a file that takes longer than `SECONDS`,
- a saved document that was changed and is read as another one without a word.

Parquet is left out: polars ends the process where a damaged length asks for more memory than there is.
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
from pathlib import Path
from typing import Any

import isocompute_sdk as iso

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "tests/unit/ingest/data"
SECONDS, MEMORY = 10, 6 * 2**30
"""A file may take this long; a process may map this much."""
WORDS = [
    "",
    "nan",
    "inf",
    "-1",
    "0",
    "1e400",
    "1e-400",
    "9" * 400,
    "true",
    "null",
    "n",
    "step",
    "avg@4",
    "\0",
    "\x1b[31m",
]
WORDS += [
    "=cmd()",
    "../../x",
    "$(id)",
    "'",
    '"',
    ",",
    "{",
    "[",
    "�",
    "\ufeff",
    "1_000",
    "12:00",
    "2026-01-01",
    "1,5",
    "8",
    "8.5",
]


class Slow(BaseException):
    """Not an Exception: nothing may swallow it."""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The file with one to four changes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = data.splitlines(keepends=True)
        at = rng.randrange(len(data) + 1)
        match rng.randrange(9):
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


def kinds(folder: Path) -> dict[str, tuple[Path, str, Callable[[Path], Any], bool]]:
    """Kind -> (clean path, the file below it to damage, its reader, whether a changed one must be refused)."""
    runs = iso.read(ROOT / "docs/examples/runs.csv")
    fits = iso.fit(runs)
    plan = iso.Planner(fits).allocate("900k")
    fits.save(folder / "fits.json")
    plan.save(folder / "plan.json")
    shutil.copy(ROOT / "docs/examples/runs.csv", folder)
    runs.to_polars().write_ndjson(folder / "runs.jsonl")

    def read(path: Path) -> Any:
        return iso.read(path)

    def sized(path: Path) -> Any:
        return iso.read(path, set={"group_size": 4, "problems_per_batch": 4})

    def study(path: Path) -> Any:
        return iso.load_study(path)

    found: dict[str, tuple[Path, str, Callable[[Path], Any], bool]] = {
        "plan": (folder / "plan.json", "", iso.Plan.load, True),
        "fits": (folder / "fits.json", "", iso.Fits.load, True),
        "csv": (folder / "runs.csv", "", read, False),
        "jsonl": (folder / "runs.jsonl", "", read, False),
        "TRL state": (LOGS / "trl", "trainer_state.json", read, False),
        "TRL arguments": (LOGS / "trl", "args.json", read, False),
        "training_args.bin": (LOGS / "trl_1_16/checkpoint-6", "training_args.bin", read, False),
        "veRL file log": (LOGS / "verl/math", "qwen.jsonl", sized, False),
        "veRL console": (LOGS / "verl", "console.txt", read, False),
        "tinker": (LOGS / "tinker", "metrics.jsonl", read, False),
        "SkyRL console": (LOGS / "skyrl/console.txt", "", sized, False),
    }
    for events in sorted(LOGS.rglob("events.out*"))[:2]:
        found[f"events of {events.relative_to(LOGS).parts[0]}"] = (events.parent, events.name, sized, False)
    for path in sorted((ROOT / "specs").glob("*.yaml")):
        found[f"study {path.stem}"] = (path, "", study, False)
    return found


def tried(read: Callable[[Path], Any], path: Path) -> tuple[str, Any]:
    """What came of reading: refused, read, slow, or the place of a raw exception; and what was read."""
    signal.alarm(SECONDS)
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
        signal.alarm(0)


def summarise(counts: dict[str, Counter[str]], bad: Counter[tuple[str, str]]) -> None:
    """Print the table of kinds."""
    for kind, count in sorted(counts.items()):
        print(f"{kind:24} {sum(count.values()):6} files  {count['refused']:6} refused  {count['bad']:4} bad")
    print(f"{sum(sum(count.values()) for count in counts.values())} files, {sum(bad.values())} bad of {len(bad)} sorts")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most")


def main() -> int:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", help="only kinds that begin so")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def alarm(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, alarm)
    counts: dict[str, Counter[str]] = {}
    bad: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        known = kinds(folder)
        if options.kinds:
            known = {kind: entry for kind, entry in known.items() if kind.startswith(tuple(options.kinds))}
        end, names = time.monotonic() + options.seconds, list(known)
        clean: dict[str, Any] = {}
        while time.monotonic() < end:
            kind = rng.choice(names)
            source, inside, read, sealed = known[kind]
            if kind not in clean:
                outcome, clean[kind] = tried(read, source)
                if outcome != "read":
                    bad[kind, f"the clean file: {outcome}"] += 1
                    print(f"{kind}: the clean file is {outcome}", flush=True)
            target = folder / "damaged" / source.name
            shutil.rmtree(target.parent, ignore_errors=True)
            target.parent.mkdir()
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
            hurt = target / inside if inside else target
            before = hurt.read_bytes()
            after = damaged(before, rng)
            hurt.write_bytes(after)
            outcome, value = tried(read, target)
            if outcome == "read" and sealed and value != clean[kind]:
                outcome = "another document, without a word"
            counts.setdefault(kind, Counter())[outcome if outcome in {"read", "refused"} else "bad"] += 1
            if outcome not in {"read", "refused"}:
                bad[kind, outcome] += 1
                if bad[kind, outcome] == 1:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{len(bad)}-{hurt.name}").write_bytes(after)
                    print(f"{kind}: {outcome}", flush=True)
    summarise(counts, bad)
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "100")
    sys.exit(main())
