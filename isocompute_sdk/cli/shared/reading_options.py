"""The options of commands that read or fit runs: every such command takes all of them, from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits, FitsSet
    from isocompute_sdk.ingest.mapping import RunMap
    from isocompute_sdk.records import RunSet

PANEL, PAPER = "What the columns mean", "Only with --method paper"


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What the columns of tables and logs mean, as typed on the command line."""

    set_: Annotated[
        list[str] | None,
        opt.option("Set a missing column, e.g. --set problems_per_batch=32; repeatable.", PANEL, "--set"),
    ] = None
    rename: Annotated[
        list[str] | None,
        opt.option("Rename a column or tag, THEIRS=OURS, e.g. --rename G=n; repeatable.", PANEL, "--rename"),
    ] = None
    ignore: Annotated[list[str] | None, opt.option("Column or tag to leave out; repeatable.", PANEL, "--ignore")] = None
    map: opt.Map = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of `RunSet.read` besides the paths.

        Raises:
            SpecError: a text that is not name=value, or a value still to be filled in.
        """
        from isocompute_sdk.records.columns import PLACEHOLDERS

        renamed = {name: str(new) for name, new in opt.assignments(self.rename, "--rename").items()}
        constants = opt.assignments(self.set_, "--set")
        for name, value in constants.items():
            if value in (*PLACEHOLDERS.values(), "...", "?", name.upper()):
                raise SpecError(f"--set {name}={value}; accepted: {name} with its value", "Fill in the value.")
        return {"rename": renamed, "ignore": tuple(self.ignore or ()), "set": constants}

    def words(self) -> list[str]:
        """These options as they are typed, quoted for a shell, without `--map`."""
        typed = (("--set", self.set_), ("--rename", self.rename), ("--ignore", self.ignore))
        return [f"{flag} {quote(value)}" for flag, values in typed for value in values or ()]

    def sources(self, paths: Sequence[Path] | None) -> list[str]:
        """What is read, as it is typed: the paths or `--map`, and these options."""
        read = [quote(str(path)) for path in paths or ()]
        return [*([f"--map {quote(str(self.map))}"] if self.map is not None else read), *self.words()]

    def places(self, paths: Sequence[Path] | None) -> list[Path]:
        """Where the runs lie: the paths, or what the mapping searched."""
        from isocompute_sdk.ingest.mapping import RunMap

        searched = [] if self.map is None else [self.map.parent / one for one in RunMap.load(self.map).searched]
        return [*(paths or ()), *searched]

    def refuse_both(self, paths: Sequence[Path] | None, example: str) -> None:
        """Raise unless either paths or a mapping were given.

        Raises:
            SpecError: naming what was received.
        """
        if (self.map is None) == (not paths):
            received = "paths and --map" if paths else "neither paths nor --map"
            raise SpecError(f"received {received}; accepted: PATHS, or --map FILE", f"For example {example}.")

    def saved(self, source: Sequence[Path] | None) -> Path | None:
        """The saved answer that is the source, of which nothing is read or fitted anew; None of runs.

        Raises:
            SpecError: options of reading or fitting with a saved answer.
        """
        if source is None or len(source) != 1 or not holds_fits(source[0]):
            return None
        if refused := opt.changed_options(self):
            raise SpecError(
                f"{', '.join(refused)} with {source[0]}, which is already fitted; accepted: with runs",
                "Give the runs, or leave the options out.",
            )
        return source[0]

    def mapping(self, metric: str | None = None) -> RunMap:
        """The mapping, with what the other options say.

        Raises:
            SpecError: the file is no mapping.
        """
        from isocompute_sdk.ingest.mapping import RunMap

        return RunMap.load(self.map or "").told(metric=metric, **self.arguments())

    def read(self, paths: Sequence[Path] | None, metric: str | None = None, **options: Any) -> RunSet:
        """Runs of files, folders or globs, or of the mapping; `options` are further arguments of `RunSet.read`.

        Raises:
            SpecError: neither paths nor a mapping, or both.
            RecordError: as `RunSet.read`.
        """
        from isocompute_sdk.ingest import read_mapped
        from isocompute_sdk.records import RunSet

        self.refuse_both(paths, "`runs/`, or --map map.yaml")
        if self.map is not None:
            return read_mapped(self.map, self.mapping(metric))
        return RunSet.read(list(paths or ()), metric=metric, **self.arguments(), **options)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(TableOptions):
    """The same, and the metric that a question is about."""

    metric: Annotated[
        str | None,
        opt.option(
            "Metric to use: by default avg@4, else what most runs have, else the training reward. "
            "Also names what a column `reward` or `value` holds.",
            PANEL,
            "--metric",
        ),
    ] = None

    def words(self) -> list[str]:
        """As `TableOptions.words`, with the metric."""
        return [*super().words(), *([] if self.metric is None else [f"--metric {quote(self.metric)}"])]


@dataclass(frozen=True, kw_only=True)
class FittingOptions(TableOptions):
    """What to fit and how, as typed on the command line."""

    metric: Annotated[
        list[str] | None,
        opt.option(
            "Metric to fit; repeatable, the first decides. By default avg@4, else what most runs have, else the "
            "training reward. Also names what a column `reward` or `value` holds.",
            None,
            "--metric",
        ),
    ] = None
    eval_set: opt.EvalSet = None
    method: Annotated[
        str, opt.option("surface (all runs fitted together) or paper (a curve per n, their envelope, a sigmoid).")
    ] = "surface"
    points: Annotated[str | None, opt.option("records (the paper's; the default) or all (less biased).", PAPER)] = None
    bin_width: Annotated[
        float | None, opt.option("Reward bin of record-breaking points, as a share of the range; 0.005.", PAPER)
    ] = None
    curve: Annotated[str | None, opt.option("auto (the default), saturating_exponential, logistic or hill.", PAPER)] = (
        None
    )
    compute: Annotated[str, opt.option("Compute axis: rollouts or tokens.")] = "rollouts"
    bounds: opt.Bounds = (0.0, 1.0)
    pool: opt.Pool = None
    seed: opt.Seed = 0

    def fit(self, runs: Sequence[Path] | None, **settings: Any) -> Fits | FitsSet:
        """Read runs and fit them; one `Fits`, or a `FitsSet` for several metrics.

        Args:
            runs: files, folders and globs; None with --map.
            **settings: further arguments of `api.fit`; None for its defaults.

        Raises:
            SpecError: an unknown method, or options that only the other method has.
        """
        from isocompute_sdk import api
        from isocompute_sdk.fitting.fits import Fits, FitsSet

        pool, eval_set = as_study(runs, self.pool, self.eval_set)
        chosen = replace(self, pool=pool, eval_set=eval_set).fit_arguments(**settings)
        first = self.metric[0] if self.metric else None
        found = api.fit(self.read(runs, first), **chosen)
        typed = " ".join(self.sources(runs))
        if isinstance(found, Fits):
            return replace(found, read_from=typed)
        return FitsSet({metric: replace(one, read_from=typed) for metric, one in found.items()})

    def fits_of(self, source: Sequence[Path] | None, **settings: Any) -> Fits | FitsSet:
        """Saved fits, or those of runs; arguments and errors as of `fit`."""
        from isocompute_sdk.fitting.fits import Fits

        saved = self.saved(source)
        return self.fit(source, **settings) if saved is None else Fits.load(saved)

    def fit_arguments(self, **settings: Any) -> dict[str, Any]:
        """Arguments of `api.fit` besides the runs, without those that were not given.

        Raises:
            SpecError: an unknown method, or options that only the other method has.
        """
        from isocompute_sdk import api

        if self.method not in api.OPTIONS:
            raise SpecError(f"--method {self.method!r}; accepted: {', '.join(api.OPTIONS)}", "Use one of the two.")
        only_paper = {"points": self.points, "bin_width": self.bin_width, "curve": self.curve}
        given = [f"--{name.replace('_', '-')}" for name, value in only_paper.items() if value is not None]
        if given and self.method == "surface":
            raise SpecError(
                f"{', '.join(given)} with --method surface, which uses every evaluation and one family of curves",
                f"Leave {', '.join(given)} out, or add --method paper.",
            )
        metric = self.metric[0] if self.metric and len(self.metric) == 1 else self.metric or None
        chosen: dict[str, Any] = {"method": self.method, "compute": self.compute, **only_paper, **settings}
        chosen |= {"metric": metric, "eval_set": self.eval_set, "rng": self.seed, "bounds": self.bounds}
        return {name: value for name, value in {**chosen, "pool": tuple(self.pool or ())}.items() if value is not None}


def as_study(
    runs: Sequence[Path] | None, pool: Sequence[str] | None, eval_set: str | None
) -> tuple[list[str], str | None]:
    """What to pool and the evaluation set, as typed; a study or campaign whose folder it is adds how it fits its runs.

    Raises:
        IsoComputeError: the record of a campaign is damaged.
    """
    from isocompute_sdk.campaigns.overview import study_of

    if runs is None or len(runs) != 1 or not runs[0].is_dir() or study_of(runs[0]) is None:
        return list(pool or ()), eval_set
    # Learning rates of one study follow the rule of its recipe, and may differ.
    return list(dict.fromkeys([*(pool or ()), "learning_rate"])), eval_set or "validation"


def holds_fits(path: Path) -> bool:
    """Whether a file is named as saved fits are, and is no log that ends alike."""
    from isocompute_sdk.ingest.paths import is_log

    return path.suffix == ".json" and not (path.is_file() and is_log(path))
