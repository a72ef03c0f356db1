"""Change the source in many small ways and see which changes the tests notice.

    python scripts/mutants.py isocompute_sdk/planning isocompute_sdk/documents.py --count 200 --tests tests/unit

draws mutants with a fixed seed (a comparison, an operator, a constant or a condition is changed) and runs the tests on
a copy of the checkout that holds one of them at a time: first the tests of the folder that mirrors the changed file,
then, if those pass, all that `--tests` names. The same tests must pass on the unchanged copy first. It says a line for
each mutant and at the end how many were killed, how many lived, and how many ran out of time, which proves nothing on
a busy machine: take a `--limit` far above the seconds that are printed for the unchanged copy. `--seed` draws others.

To ask the whole suite about a mutant, only the tests that ran its lines are needed. They are those of a coverage file:

    PYTHONPATH=scripts COVERAGE_FILE=/tmp/lines coverage run -m pytest -n 0 -p mutants
    python scripts/mutants.py isocompute_sdk/planning --lines /tmp/lines

What a test ran in another process is not in it.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutate(node: ast.AST) -> bool:
    """Change the node in place; False, and nothing changed, where no small change is known."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        node.ops[0] = OTHER[type(node.ops[0])]()  # pyright: ignore[reportArgumentType, reportCallIssue]
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER:
        node.op = OTHER[type(node.op)]()  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        node.value = node.value + 1
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    else:
        return False
    return True


def sites(path: Path) -> list[tuple[Path, int]]:
    """Every place of a file that `mutate` can change: (file, position in `ast.walk`), annotations left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hints = [n.annotation for n in ast.walk(tree) if isinstance(n, ast.AnnAssign | ast.arg) and n.annotation]
    hints += [n.returns for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.returns]
    skipped = {id(inner) for hint in hints for inner in ast.walk(hint)}
    nodes = list(ast.walk(tree))
    return [(path, i) for i in range(len(nodes)) if id(nodes[i]) not in skipped and mutate(nodes[i])]


def mutant(path: Path, position: int) -> tuple[str, str]:
    """What the change is, and the whole source with it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = list(ast.walk(tree))[position]
    said = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
    before, line = ast.unparse(said), getattr(node, "lineno", 0)
    mutate(node)
    said = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
    return f"{path.relative_to(ROOT)}:{line}: {before[:60]} -> {ast.unparse(said)[:60]}", ast.unparse(tree)


def nearest(path: Path) -> list[str]:
    """Tests of a source file: the folder or file of the same name below tests. Empty if neither exists."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "backends":
        choices = sorted((ROOT / "tests/backends").glob(f"{parts[1].removeprefix('isocompute_')}*"))
    else:
        choices = [ROOT / "tests/unit" / Path(*parts[1:-1]), ROOT / "tests/unit" / f"test_{parts[-1]}.py"]
    return [str(choice.relative_to(ROOT)) for choice in choices if choice.exists() and choice != ROOT / "tests/unit"]


def pytest_runtest_logstart(nodeid: str) -> None:
    """As a plug-in of pytest under coverage: the lines that run from here on are those of this test."""
    from coverage import Coverage

    if (running := Coverage.current()) is not None:
        running.switch_context(nodeid.partition("[")[0])


def that_ran(path: Path, position: int, lines: str) -> list[str]:
    """Tests that ran the statement of a mutant; for one that runs at import, all that ran a function of its file."""
    from coverage import CoverageData

    data = CoverageData(lines)
    data.read()
    tests = data.contexts_by_lineno(str(path))
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    test = getattr(nodes[position], "test", nodes[position])
    # The last line that begins a statement above it: a statement of several lines is counted at some of them.
    first = max(node.lineno for node in nodes if isinstance(node, ast.stmt) and node.lineno <= test.lineno)
    bodies = [
        range(one.body[0].lineno, one.body[-1].end_lineno + 1) for one in nodes if isinstance(one, ast.FunctionDef)
    ]
    inside = any(first in body for body in bodies)
    ran = range(first, test.end_lineno + 1) if inside else [line for body in bodies for line in body]
    return sorted({test for line in ran for test in tests.get(line, []) if test})


def outcome(copy: Path, tests: list[str], limit: float) -> str:
    """What the tests say of the copy within `limit` seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {
        **os.environ,
        "CI": "1",  # the same generated examples for every mutant
        "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'backends'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return "TIMEOUT"
    return "LIVES" if done.returncode in (0, 5) else "killed"


def check_unchanged(copy: Path, tests: list[str], limit: float) -> None:
    """Stop if the tests do not pass without a mutant: they would kill every one."""
    began = time.monotonic()
    if (said := outcome(copy, tests, limit)) != "LIVES":
        raise SystemExit(f"{' '.join(tests)}: {said} on the unchanged source")
    sys.stdout.write(f"{' '.join(tests)}: pass unchanged in {time.monotonic() - began:.0f} s\n")
    sys.stdout.flush()


def main() -> None:
    """Draw the mutants, run the tests on each, and say which live."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", help="files and folders of source")
    parser.add_argument("--count", type=int, default=100, help="mutants to draw (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default 0)")
    parser.add_argument("--tests", nargs="*", default=[], help="tests to run as well where the nearest ones pass")
    parser.add_argument("--lines", help="coverage file: run the tests that ran the changed lines as well")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one run of tests (default 600)")
    options = parser.parse_args()
    files = [
        f
        for name in options.paths
        for f in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))
    ]
    places = [place for file in files for place in sites(file)]
    drawn = random.Random(options.seed).sample(places, min(options.count, len(places)))
    stages = {path: [tests for tests in (nearest(path), options.tests) if tests] for path, _ in drawn}
    said: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "_build", "dist"))
        for tests in sorted({tuple(tests) for parts in stages.values() for tests in parts}):
            check_unchanged(copy, list(tests), options.limit)
        for done, (path, position) in enumerate(drawn, 1):
            change, source = mutant(path, position)
            target = copy / path.relative_to(ROOT)
            original = target.read_text(encoding="utf-8")
            target.write_text(source, encoding="utf-8")
            found = "LIVES"
            ran = that_ran(path, position, options.lines) if options.lines else []
            for tests in [*stages[path], *([ran] if ran else [])]:
                if (found := outcome(copy, tests, options.limit)) != "LIVES":
                    break
            target.write_text(original, encoding="utf-8")
            said[found] += 1
            sys.stdout.write(f"{found:7} {change} ({done} of {len(drawn)})\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"{said['killed']} of {len(drawn)} killed ({said['killed'] / len(drawn):.0%}), {said['LIVES']} live, "
        f"{said['TIMEOUT']} ran out of time; {len(places)} places, seed {options.seed}\n"
    )


if __name__ == "__main__":
    main()
