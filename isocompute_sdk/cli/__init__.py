"""The `isocompute` command: parsing, exit codes and the only printing in the package."""

from __future__ import annotations

import errno
import sys

from isocompute_sdk.errors import IsoComputeError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


def main() -> None:
    """Run the command line; exit code 0 only on success."""
    from isocompute_sdk.cli.shared.output import for_shell, printable

    try:
        from isocompute_sdk.cli.app import app

        app()
    except KeyboardInterrupt:
        # Before a command has begun; later on typer ends alike.
        raise SystemExit(INTERRUPTED) from None
    except IsoComputeError as error:
        print(f"error: {printable(for_shell(error), keep=chr(10))}", file=sys.stderr)
        raise SystemExit(1) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(printable(f"error: {error.strerror or error}{where}"), file=sys.stderr)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            print("  Make room and run the command again: finished stages and runs are kept.", file=sys.stderr)
        else:
            print("  Check the path and its permissions.", file=sys.stderr)
        raise SystemExit(1) from None
