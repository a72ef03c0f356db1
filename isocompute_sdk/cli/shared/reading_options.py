"""The options of commands that read runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared.options import assignments

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """What the columns of tables and logs mean, as typed on the command line."""

    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Column that the file lacks, e.g. --set problems_per_batch=32; repeatable."),
    ] = None
    rename: Annotated[
        list[str] | None, typer.Option("--rename", help="Column that has another name, e.g. --rename G=n; repeatable.")
    ] = None
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="Column to leave out; repeatable.")] = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of `RunSet.read` besides the paths.

        Raises:
            SpecError: a text that is not name=value.
        """
        renamed = {name: str(new) for name, new in assignments(self.rename, "--rename").items()}
        return {"rename": renamed, "ignore": tuple(self.ignore or ()), **assignments(self.set_, "--set")}

    def read(self, paths: Sequence[Path], metric: str | None = None, **options: Any) -> RunSet:
        """Runs of one or several files, folders or globs; `options` are further arguments of `RunSet.read`."""
        from isocompute_sdk.records import RunSet

        return RunSet.read(list(paths), metric=metric, **self.arguments(), **options)
