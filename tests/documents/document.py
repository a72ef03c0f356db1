"""Documents whose examples run: Markdown files and Jupyter notebooks, executed in a folder and held to what they show.

A fence of `python` or `bash` is an example, unless the word `no-run` follows; one example goes on where the last one
stopped. A fence of `text` behind it is what it prints: every number shown must come out, in this order, unless the
word `varies` follows. Wording may differ, and lines may be left out. The next fence under a paragraph that begins with
a file name is that file.

`python -m tests.documents.document FILE...` runs documents and writes down what came out.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from markdown_it import MarkdownIt
from nbclient import NotebookClient

from isocompute_sdk.cli import main as run_command
from tests.processes import HANG_SECONDS

REPOSITORY = Path(__file__).resolve().parents[2]
WIDTH = 100
COMMAND = re.compile(
    r"(isocompute [^|&;<>$`*?\\(){}~]*?)(2>&1 )?((?:\|(?!\|)|>)(?:[^|&'\"]|'[^']*'|\"[^\"]*\")*)?(\|\| true)?"
)
"""A line of our command, perhaps with its messages, into a filter or a file, and allowed to fail."""
FILE_NAME = re.compile(r"[\w./-]+\.\w+")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fence of a Markdown document."""

    info: tuple[str, ...]
    """Language and the words behind it."""
    content: str
    line: int
    """Line of the opening fence, from 0."""
    file: str | None
    """Name of the file that it holds."""

    @property
    def example(self) -> bool:
        """Whether it runs."""
        return self.file is None and self.info[:1] in {("bash",), ("python",)} and "no-run" not in self.info


def blocks(text: str) -> Iterator[Block]:
    """All fences of a document."""
    name: str | None = None
    for token in MarkdownIt().parse(text):
        if token.type == "heading_open":
            name = None
        elif token.type == "inline":
            first = (token.children or [token])[0]
            if first.type == "code_inline" and FILE_NAME.fullmatch(first.content):
                name = first.content
        elif token.type == "fence":
            assert token.map is not None
            yield Block(tuple(token.info.split()), token.content, token.map[0], name)
            name = None


def files_of(text: str) -> dict[str, str]:
    """Files that a document holds, by name; one that is shown in parts is their sum."""
    files: dict[str, str] = {}
    for block in blocks(text):
        if block.file is not None:
            files[block.file] = files.get(block.file, "") + block.content
    return files


def prepare(folder: Path) -> dict[str, str]:
    """Make a folder look like a clone with its environment activated; returns the variables of processes in it."""
    for name in ("benchmarks", "docs", "isocompute_sdk", "specs", "tests"):
        (folder / name).symlink_to(REPOSITORY / name)
    programs = folder / ".programs"
    programs.mkdir()
    command = programs / "isocompute"
    command.write_text(f"#!{sys.executable}\nfrom isocompute_sdk.cli import main\nmain()\n", encoding="utf-8")
    command.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb", "MPLBACKEND": "Agg"}


def run_markdown(path: Path, folder: Path) -> list[tuple[Block, str]]:
    """Run a document's examples in an empty folder.

    Returns: for each example that is followed by what it prints, the block that shows it and what came out.
    """
    environment, variables = prepare(folder), {"__name__": "__main__"}
    text = path.read_text(encoding="utf-8")
    shown: list[tuple[Block, str]] = []
    output: str | None = None
    for block in blocks(text):
        if block.file is not None:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files_of(text)[block.file], encoding="utf-8")
        elif block.example:
            where = f"{path.name}, line {block.line + 1}"
            run = _shell if block.info[0] == "bash" else _python
            output = run(block, where, folder, environment, variables).replace(f"{folder}/", ".../")
        elif block.info[:1] == ("text",) and output is not None:
            shown.append((block, output))
            output = None
    return shown


def _shell(block: Block, where: str, folder: Path, environment: dict[str, str], _: dict[str, Any]) -> str:
    lines = block.content.splitlines()
    if not all(COMMAND.fullmatch(line) or line.startswith(("cat ", "mkdir ", "python ", "sed ")) for line in lines):
        return _bash(block.content, where, folder, environment)
    found = [(line, COMMAND.fullmatch(line)) for line in lines]
    return "".join(
        (_command(ours, where, folder, environment) if ours else _bash(line, where, folder, environment))
        for line, ours in found
    )


def _bash(text: str, where: str, folder: Path, environment: dict[str, str], given: str = "") -> str:
    program = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(
        program, cwd=folder, env=environment, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _command(line: re.Match[str], where: str, folder: Path, environment: dict[str, str]) -> str:
    """Our command without a process of its own, which would take longer than most commands do."""
    words, with_messages, target, may_fail = line.groups()
    out = io.StringIO()
    err = out if with_messages else io.StringIO()
    with (
        chdir(folder),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", shlex.split(words)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            run_command()
            code: object = 0
        except SystemExit as ended:
            code = ended.code
    assert not code or may_fail, f"{where}: exit code {code}\n{out.getvalue()[-2000:]}\n{err.getvalue()[-2000:]}"
    return _bash(f"cat {target}", where, folder, environment, out.getvalue()) if target else out.getvalue()


def _python(block: Block, where: str, folder: Path, environment: dict[str, str], variables: dict[str, Any]) -> str:
    printed = io.StringIO()
    code = compile("\n" * (block.line + 1) + block.content, where, "exec", dont_inherit=True)
    with chdir(folder), mock.patch.dict(os.environ, environment), redirect_stdout(printed):
        exec(code, variables)
    return printed.getvalue()


def numbers(text: str) -> list[str]:
    """Numbers of a text as written."""
    return [found.group() for found in NUMBER.finditer(text)]


def missing(shown: str, output: str) -> str | None:
    """First number shown that does not come out, in order; None if all do. The last digit may differ by one."""
    rest = iter(numbers(output))
    return next((number for number in numbers(shown) if not any(_same(number, other) for other in rest)), None)


def _same(shown: str, other: str) -> bool:
    a, b = shown.replace(",", ""), other.replace(",", "")
    mantissa, _, exponent = a.lower().partition("e")
    digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
    unit = 10.0**-digits if "." in mantissa or exponent else 0.0
    return abs(float(a) - float(b)) <= 1.01 * unit


def run_notebook(path: Path, folder: Path) -> tuple[nbformat.NotebookNode, nbformat.NotebookNode]:
    """Run a notebook in an empty folder; returns it as committed and as it came out."""
    before: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    after: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    environment = {**prepare(folder), "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        after, timeout=HANG_SECONDS, kernel_name="python3", resources=resources, coalesce_streams=True
    )
    client.execute(env=environment, cwd=str(folder))
    return before, after


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell prints and returns as text."""
    parts: list[str] = []
    for output in cell.get("outputs", ()):
        parts.append(output.get("text") or output.get("data", {}).get("text/plain") or "")
    return "".join(parts)


def refreshed(shown: str, output: str) -> str:
    """What is shown, as it now comes out: all of it, or the lines most like those shown if `...` leaves some out."""
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    if not any(line.strip() == "..." for line in shown.splitlines()):
        return "\n".join(lines) + "\n"
    kept: list[str] = []
    start = 0
    for line in shown.splitlines():
        if line.strip() == "...":
            kept.append(line)
            continue
        ratios = [SequenceMatcher(None, line, other).ratio() for other in lines[start:]]
        if ratios and max(ratios) > 0.6:
            start += ratios.index(max(ratios)) + 1
            kept.append(lines[start - 1])
    return "\n".join(kept) + "\n"


def refresh(path: Path, folder: Path) -> None:
    """Run a document and write down what came out."""
    if path.suffix == ".ipynb":
        _, after = run_notebook(path, folder)
        for cell in after.cells:
            cell.metadata.pop("execution", None)
            for output in cell.get("outputs", ()):
                output.get("data", {}).pop("text/html", None)
        after.metadata = {"kernelspec": after.metadata.kernelspec, "language_info": {"name": "python"}}
        nbformat.write(after, path)
        return
    text = path.read_text(encoding="utf-8")
    if "pyproject.toml" in files_of(text):
        sys.exit(f"{path} is not run: it would install a package here; tests/backends/third_party tests it")
    lines = text.splitlines(keepends=True)
    for block, output in reversed(run_markdown(path, folder)):
        first = block.line + 1
        lines[first : first + block.content.count("\n")] = [refreshed(block.content, output)]
    path.write_text("".join(lines), encoding="utf-8")


def main(paths: Sequence[str]) -> None:
    """Refresh documents."""
    for path in paths:
        folder = Path(tempfile.mkdtemp())
        try:
            refresh(Path(path), folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
