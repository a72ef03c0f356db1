"""Rebuild the numbers and pictures of the pages from committed data, and say where a page says something else.

    python scripts/evidence.py                 every page, in a few minutes
    python scripts/evidence.py forecast.md     the pages named

A line for each page: equal, or what differs. What takes hours, or depends on the machine, is listed last with the
command that repeats it.
"""

import importlib
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import isocompute_sdk as iso
from isocompute_sdk.auditing.backtest import WINDOW, Backtest, Row

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks/data"


def bench(name: str) -> Any:
    """A program of benchmarks/ as a module."""
    (program,) = (ROOT / "benchmarks").rglob(f"{name}.py")
    sys.path.insert(0, str(program.parent))
    return importlib.import_module(name)


def page(name: str) -> str:
    """Text of the README or of a page of docs/."""
    return next(path for path in (ROOT / name, ROOT / "docs" / name) if path.exists()).read_text(encoding="utf-8")


def tables(text: str) -> dict[str, list[str]]:
    """Header line -> rows of the Markdown tables with this header."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        header, _, *rows = block.splitlines()
        found.setdefault(header, []).extend(rows)
    return found


def unlike(name: str, rebuilt: str) -> Iterator[str]:
    """Rows of a page that do not come out, of the tables that it shares with `rebuilt`; a page may leave rows out."""
    said = tables(page(name))
    shared = {header: rows for header, rows in tables(rebuilt).items() if header in said}
    if not shared:
        yield f"{name} has no table {list(tables(rebuilt))}"
    for header, rows in shared.items():
        yield from (f"{name} says {row}" for row in said[header] if row not in rows)


def unsaid(name: str, *words: str) -> Iterator[str]:
    """Words that a page does not hold, wherever its lines break."""
    text = " ".join(page(name).split())
    yield from (f"{name} does not say {one}" for one in words if one not in text)


def short(number: float, digits: int = 3) -> str:
    """A share as pages write it: without the zero before the point."""
    return f"{number:.{digits}f}".removeprefix("0")


def allocation() -> Iterator[str]:
    """Regret, intervals and verdicts on the corpus, as the committed rows say."""
    rows = [Row(**row) for row in pl.read_csv(DATA / "backtest.csv").to_dicts()]
    found = Backtest(tuple(rows), tuple(dict.fromkeys(row.method for row in rows)))
    yield from unlike("allocation.md", found.table())
    for row, behind in found.worst():
        words = f"{row.pilot}: n = {row.group_size} loses {row.regret:.3f}, {behind:.3f} more"
        yield from unsaid("allocation.md", words)
    lost = [[row.regret for row in found.choices if row.method == one] for one in ("planner", "best pilot")]
    (mean, worst), (other, others) = ((short(float(np.mean(part)), 4), short(max(part))) for part in lost)
    lines: dict[tuple[str, bool], str] = {}
    for row in found.accuracy():
        place = row["group"], row["same_run"]
        start = f"| {place[0]} | {'same run' if place[1] else 'other seeds'} |"
        cell = f" {row['held']} of {row['predictions']}, {short(row['error'])} |"
        lines[place] = lines.get(place, start) + cell
    yield from unsaid("allocation.md", *lines.values())
    said = [row for row in rows if row.predicted is not None]
    share = short(float(np.mean([bool(row.held) for row in said])), 2)
    yield from unsaid("allocation.md", f"loses {mean} on average and {worst} at worst", f"rewards ({share})")
    words = f"loses {mean} on average and {worst} at worst, the n of the best pilot run {other} and {others}"
    yield from unsaid("README.md", words, f"intervals contained {100 * float(share):.0f} % of real rewards")


def forecast() -> Iterator[str]:
    """Forecasts from the first half of each run."""
    rows = [row for sweep in iso.sweeps() for row in bench("forecast").examine(sweep, 0.5)]
    yield from unlike("forecast.md", bench("forecast").table(rows))
    yield from unsaid("forecast.md", f"Brier {short(bench('forecast').brier(rows))}")
    held = sum(row.held for row in rows)
    yield from unsaid("allocation.md", f"they hold {held} of {len(rows)} times")
    yield from unsaid("README.md", f"and {100 * held / len(rows):.0f} % for forecasts of a single run")


def recorded() -> Iterator[str]:
    """Mean rewards of the recorded runs: every row again, at the computes and in the metrics of its header."""
    corpus = {sweep.name: sweep for sweep in iso.sweeps()}
    seeds: dict[int, list[Any]] = {}
    for header, rows in tables(page("recorded_runs.md")).items():
        titles = [title.strip() for title in header.strip("|").split("|")]
        if "n" not in titles[1:]:
            continue
        width = 1.14 if titles[-1] == "80k" else WINDOW  # the runs of TRL have more evaluations
        for row in rows:
            label, n, *said = (cell.strip() for cell in row.strip("|").split("|"))
            stem = re.sub(r" and |, | ", "-", label).replace("seed-1", "t1").lower() + "-d64" * ("training" in header)
            near = [
                corpus[name] for name in (stem, f"trl-{stem}", f"mul31-{stem}", f"mul31-{stem}-3m") if name in corpus
            ]
            sweep = next(one for one in near if any(run.group_size == int(n) for run in one.runs.runs()))
            metric = sweep.provenance.metrics[0]
            for title, cell in zip(titles[2:], said, strict=True):
                kind, _, at = title.rpartition(" at ")
                metric = {"": metric, "training reward": "train_reward"}.get(kind, kind)
                runs = [one for one in sweep.runs.series(metric) if one.group_size == int(n)]
                made = str(len(runs))
                if title != "seeds":
                    wanted = max(1000 * float(at.removesuffix("k")), 0.1)
                    far = [np.abs(np.log(np.maximum(one.rollouts_T, 0.1) / wanted)) <= math.log(width) for one in runs]
                    parts = [one.value_T[close_T] for one, close_T in zip(runs, far, strict=True)]
                    made = short(float(np.mean([part.mean() for part in parts if part.size])))
                if made != cell:
                    yield f"recorded_runs.md says {cell} of {label}, n = {n}, {title}; rebuilt: {made}"
    for one in corpus["mul31-easy-3m"].runs.series("avg@4"):
        seeds.setdefault(one.group_size, []).append(one)
    for runs, (a, b) in product(seeds.values(), ((3e5, 7e5), (7e5, 1.5e6), (1.5e6, 3e6))):
        means = [float(one.value_T[(a <= one.rollouts_T) & (one.rollouts_T <= b)].mean()) for one in runs]
        error = float(np.std(means, ddof=1)) / math.sqrt(len(means))
        yield from unsaid("recorded_runs.md", ", ".join(map(short, means)))
        yield from unsaid("recorded_runs.md", f"{short(float(np.mean(means)))} ± {short(error)}")


def language_model() -> Iterator[str]:
    """Ends of the runs of SmolLM2: means of the last three evaluations."""
    runs = iso.read(DATA / "smollm2/sweep/smollm2-easy.csv")
    cells: dict[int, list[list[str]]] = {}
    for one, best in zip(runs.series("avg@4"), runs.series("best@4"), strict=True):
        ends = [short(float(each.value_T[-3:].mean())) for each in (one, best)]
        cells.setdefault(one.group_size, []).append([f"{one.rollouts_T[-1]:,.0f}", *ends])
    for n, seeds in cells.items():
        yield from unsaid("language_model.md", f"| {n} | {' | '.join(map(', '.join, zip(*seeds, strict=True)))} |")


def run(folder: str, *words: str) -> str:
    """What a command prints in a folder."""
    command = [sys.executable, "-c", "from isocompute_sdk.cli import main; main()", *words]
    wide = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(command, cwd=folder, env=wide, check=True, capture_output=True, text=True).stdout


def shown() -> Iterator[str]:
    """What commands print and draw, where no test executes the page."""
    from tests.documents.document import blocks

    corpus, paper = ROOT / "isocompute_sdk/laws/data/sweeps/mul31-easy.csv", "isocompute-paper/runs.csv"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "docs/examples/made_up_run.py"], cwd=folder, check=True)
        plan, table = f"allocate {paper} --budget 3M", ROOT / "docs/examples/runs.csv"
        for name, key, words in (
            ("index.md", "is best of those", "quickstart --paper"),
            ("pilot.md", "share of the budget  ", "next --budget 3M"),
            ("audit.md", "is best of those", f"audit {paper}"),
            ("health.md", "decayed-run", "status exp --watch --once"),
            ("README.md", "Approve up to step", f"allocate {table} --budget 900k"),
            ("forecast.md", "fitted avg@4", f"forecast {table} --run run-n32"),
            ("logs.md", "run-n8 ", f"doctor {table}"),
            ("concepts.md", "is best of those", plan),
            ("planning.md", "predicted avg@4", plan),
        ):
            block = next(one.content for one in blocks(page(name)) if key in one.content)
            screen = re.sub(r"^\$.*\n", "", block)
            if not comes_out(screen, run(folder, *words.split())):
                yield f"{name}: isocompute {words} prints something else than {screen.splitlines()[0]}"
        picture = bench("draw_page")
        if picture.words(picture.make(Path(folder))) != picture.words_of(picture.PICTURE):
            yield "docs/images/report.png shows other words than the page"
        run(folder, "forecast", "exp", "--output", "entropy_collapse.svg")
        run(folder, *f"report {corpus} --figure backtest -o backtest.svg".split())
        run(folder, *f"report {paper} --figure sensitivity-n -o sensitivity_n.svg".split())
        model = f"report {DATA}/smollm2/sweep/smollm2-easy.csv --figure curves --metric avg@4 -o language_model.svg"
        run(folder, *model.split())
        run(folder, *f"report {table} --figure evaluations -o evaluations.svg".split())
        for made in (*Path(folder).glob("*.svg"), *Path(folder, "isocompute-paper").glob("*.png")):
            if not alike(made, ROOT / "docs/images" / made.name):
                yield f"docs/images/{made.name} looks otherwise"


def comes_out(shown: str, printed: str) -> bool:
    """Whether all words are printed one after the other, with others only where `...` stands for them."""
    parts = [" ".join(part.split()) for part in re.split(r"^ *\.\.\.$", shown, flags=re.MULTILINE)]
    words = " ".join(re.sub(r"^\d\d:\d\d:\d\d ", "", printed, flags=re.MULTILINE).split())
    return re.fullmatch(".*".join(map(re.escape, parts)), words) is not None


def alike(one: Path, other: Path) -> bool:
    """Whether two pictures show the same: coordinates within a point, pixels within 2 %."""
    from matplotlib.image import imread

    if one.suffix == ".png":
        first, second, most = imread(one), imread(other), 0.02
    else:
        first, second = (np.array(re.findall(r"\d+\.\d+", path.read_text()), float) for path in (one, other))
        most = 1.0
    return first.shape == second.shape and bool(np.abs(first - second).max() <= most)


def executed() -> Iterator[str]:
    """Pages that tests execute."""
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-m", "not slow", "tests/documents"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    yield from re.findall(r"^(?:FAILED|ERROR).*", done.stdout, re.MULTILINE)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "allocation.md, README.md": allocation,
    "comparing.md": lambda: unlike("comparing.md", "\n\n".join("\n".join(one) for one in bench("comparing").tables())),
    "forecast.md": forecast,
    "pilot.md": lambda: unlike("pilot.md", bench("pilot").summarise(bench("pilot").read(DATA / "pilot.parquet"))),
    "recorded_runs.md": recorded,
    "language_model.md": language_model,
    "shown output and pictures": shown,
    "tutorials, start.md, data_and_rewards.md, checked.md": executed,
}


def main(names: Sequence[str]) -> int:
    """Rebuild and compare; 1 if something differs."""
    differ = 0
    for name, rebuild in PAGES.items():
        if not names or any(one in name for one in names):
            found = list(rebuild())
            differ += len(found)
            print(f"{name}: {f'{len(found)} differ' if found else 'equal'}", *found, sep="\n    ", flush=True)
    print("hours, or another machine, repeat the rest:")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for command in re.findall(r"`(python benchmarks/[^`]*)`", " ".join(path.read_text(encoding="utf-8").split())):
            if not any(done in command for done in ("comparing.py", "forecast.py", "draw_checked.py", "draw_page.py")):
                print(f"    {path.name}: {command}")
    print("    backtest.csv: isocompute backtest --csv benchmarks/data/backtest.csv")
    print("    language_model.md: isocompute run benchmarks/data/smollm2/easy.yaml FOLDER, and the studies beside it")
    print("    builtin_task.md: isocompute quickstart")
    return int(differ > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
