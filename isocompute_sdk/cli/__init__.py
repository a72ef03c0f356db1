"""The `isocompute` command: parsing, exit codes and the only printing in the package."""

from __future__ import annotations

import errno
import sys

from isocompute_sdk.errors import IsoComputeError


def main() -> None:
    """Run the command line; exit code 0 only on success."""
    from isocompute_sdk.cli.app import app
    from isocompute_sdk.cli.output import printable

    try:
        app()
    except IsoComputeError as error:
        print(f"error: {printable(str(error), keep=chr(10))}", file=sys.stderr)
        raise SystemExit(1) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(printable(f"error: {error.strerror or error}{where}"), file=sys.stderr)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            print("  Make room and give the command again: finished stages and runs are kept.", file=sys.stderr)
        else:
            print("  Check the path and its permissions.", file=sys.stderr)
        raise SystemExit(1) from None
