"""Options that several commands share, and what they build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.errors import SpecError
from isocompute_sdk.ingest.stores.saved_config import scalar

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.records import RunSet

_OUT = "Output"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=_OUT)]
Save = Annotated[Path | None, typer.Option("--output", "-o", help="Save the result here (JSON).", rich_help_panel=_OUT)]
Plot = Annotated[
    Path | None,
    typer.Option(help="Folder for pictures: reward_curves.png, allocation_law.png.", rich_help_panel=_OUT),
]
Metric = Annotated[
    list[str],
    typer.Option(
        "--metric", help="Metric to fit; repeat it for several, the first decides. Also names a `reward` column."
    ),
]
EvalSet = Annotated[str | None, typer.Option("--eval-set", help="Evaluation set, where there are several.")]
_PAPER = "Only with --method paper"
Method = Annotated[
    str,
    typer.Option(help="surface (all runs fitted together) or paper (a curve per n, their envelope, a sigmoid)."),
]
Points = Annotated[
    str | None, typer.Option(help="records (as the paper; the default) or all (less biased).", rich_help_panel=_PAPER)
]
BinWidth = Annotated[
    float | None,
    typer.Option(help="Reward bin of record-breaking points, share of the range; 0.005.", rich_help_panel=_PAPER),
]
Curve = Annotated[
    str | None,
    typer.Option(help="auto (the default), saturating_exponential, logistic or hill.", rich_help_panel=_PAPER),
]
Compute = Annotated[str, typer.Option(help="Compute axis: rollouts or tokens.")]
Pool = Annotated[
    list[str] | None, typer.Option("--pool", help="Context field that may differ between runs; repeatable.")
]
Constants = Annotated[
    list[str] | None,
    typer.Option("--set", help="Column that the file lacks, e.g. --set problems_per_batch=32; repeatable."),
]
Seed = Annotated[int, typer.Option(help="Seed of the draws.")]


def assignments(texts: list[str] | None, option: str) -> dict[str, Any]:
    """`name=value` texts as a mapping; whole numbers, numbers and true/false are read as such.

    Raises:
        SpecError: a text without `=`.
    """
    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"{option} {text!r}; accepted: name=value", f"For example {option} seed=1.")
        found[name.strip()] = scalar(value.strip())
    return found


def read_runs(paths: list[Path], metric: str, constants: list[str] | None) -> RunSet:
    """Runs of one or several files, folders or globs."""
    from isocompute_sdk.records import RunSet

    return RunSet.read(paths, metric=metric, **assignments(constants, "--set"))


def save_pictures(source: Fits | Plan, folder: Path) -> list[Path]:
    """Both pictures of fits or a plan, each where there is something to draw."""
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.plots import figures as plots

    fits = source if isinstance(source, Fits) else source.fits
    written: list[Path] = []
    if fits is not None and fits.curves:
        written.append(plots.save_figure(plots.plot_reward_curves(source), folder / "reward_curves.png"))
    if fits is not None and (fits.surface is not None or "group_size" in fits.laws):
        written.append(plots.save_figure(plots.plot_allocation_law(source), folder / "allocation_law.png"))
    return written
