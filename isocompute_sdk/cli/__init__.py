"""The `isocompute` command: parsing, exit codes and the only printing in the package."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.interrupts import INTERRUPTED

BATCH = ("--max-rollouts-per-batch", "--rollouts-per-batch", "--problems-per-batch")
ONCE = ("--backend", "--metric", "--eval-set", "--bounds", "--deadline", *BATCH)
"""Options of which a new value takes the place of the one that was typed."""


DEBUG = "--debug"
FULL = (errno.ENOSPC, errno.EDQUOT)
PATHS = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP)
"""Errors of the system that a person can mend at the path that they name."""


def again(words: Sequence[str], options: Sequence[str]) -> str:
    """The command that was typed, with further options.

    Args:
        words: what was typed after `isocompute`.
        options: each with its value, quoted for a shell.
    """
    from isocompute_sdk.cli.shared.typed import without

    new = {option.split()[0] for option in options}
    return " ".join(["isocompute", shlex.join(without(words, [flag for flag in ONCE if flag in new])), *options])


def main() -> None:
    """Run the command line; exit code 0 only if it succeeded and its output was written."""
    from isocompute_sdk.cli.shared.output import Shown

    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        print("error: standard output is closed; send it to a file, a pipe or /dev/null", file=sys.stderr)
        raise SystemExit(1)
    out: Any = Shown(sys.stdout)
    err: Any = Shown(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        _run()


def _run() -> None:
    from isocompute_sdk.cli.shared.output import for_shell
    from isocompute_sdk.cli.shared.typed import filled, with_numbers

    try:
        from isocompute_sdk.cli.app import command

        try:
            command()
        finally:
            _flush()
    except KeyboardInterrupt:
        # Before a command has begun; later on typer ends alike.
        raise SystemExit(INTERRUPTED) from None
    except IsoComputeError as error:
        _trace(error)
        print(f"error: {filled(for_shell(error), sys.argv[1:])}", file=sys.stderr)
        if error.options:
            print(f"  {with_numbers(again(sys.argv[1:], error.options), 'try')}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:
        # Whoever read the output has had enough, as `head` has.
        raise SystemExit(1) from None
    except OSError as error:
        _trace(error)
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        if error.errno in FULL:
            print("  Make room and run the command again: finished stages and runs are kept.", file=sys.stderr)
        elif error.errno in PATHS and error.filename:
            print("  Check the path and its permissions.", file=sys.stderr)
        elif DEBUG not in sys.argv:
            shown = shlex.join(["isocompute", DEBUG, *sys.argv[1:]])
            print(f"  isocompute itself failed. To see where: {shown}", file=sys.stderr)
        raise SystemExit(1) from None


def _trace(error: Exception) -> None:
    """Where an error arose, if that was asked for."""
    if DEBUG in sys.argv:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        traceback.print_tb(error.__traceback__)


def _flush() -> None:
    """Write what was printed while an error can still become the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        # The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
