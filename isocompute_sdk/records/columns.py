"""The columns a table of evaluations may have: names, aliases, units; cells of each as typed polars series.

Errors point at the cell. How a table is to be read stands here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from isocompute_sdk.errors import RecordError, close, did_you_mean
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import GPUS, LOGIN, counted

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["text", "integer", "number"]


@dataclass(frozen=True)
class Column:
    """One column of a `RunSet`."""

    name: str
    """Canonical name, as `RunSet.to_polars` shows it."""
    kind: Kind
    """`text`, `integer` (64 bit) or `number` (float64, finite)."""
    meaning: str
    """What it holds, with its unit."""
    aliases: tuple[str, ...] = ()
    """Other names accepted on the way in."""
    minimum: int | None = None
    """Smallest accepted number; None: any."""
    per_run: bool = False
    """True if a run has one value in all its rows."""
    context: bool = False
    """True if runs with different values are pooled only on request."""
    lenient: bool = False
    """True if an unknown value agrees with any other: tables of earlier releases lack the column."""
    written: str | None = None
    """Pattern of text that says the number in its first group, beside plain numbers; None: there is none."""
    spare: bool = False
    """True if a table without it is read alike: a cell that cannot be read names the option that ignores it."""

    @property
    def accepted(self) -> str:
        """What a cell may hold, in words."""
        if self.kind == "text":
            return "text"
        noun = "whole numbers" if self.kind == "integer" else "finite numbers"
        return noun if self.minimum is None else f"{noun} >= {self.minimum}"


def _context(
    name: str, kind: Kind, meaning: str, minimum: int | None = None, *aliases: str, lenient: bool = False
) -> Column:
    return Column(name, kind, meaning, aliases, minimum, per_run=True, context=True, lenient=lenient)


_RUN = ("run", "run_name", "experiment", "experiment_name", "exp_name", "trial_name")
_GROUP_SIZE = (
    "n",
    "num_generations",
    "num_generations_per_prompt",
    "n_samples_per_prompt",
    "rollout.n_samples_per_prompt",
    "generator.n_samples_per_prompt",
    "generations_per_prompt",
    "samples_per_prompt",
    "completions_per_prompt",
    "responses_per_prompt",
    "rollouts_per_prompt",
    "rollouts_per_problem",
    "rollouts_per_example",
    "rollout.n",
    "rollout_n",
    "actor_rollout_ref.rollout.n",
)
_PROBLEMS = (
    "bp",
    "Bp",
    "B_p",
    "prompts_per_step",
    "prompts_per_batch",
    "prompts_per_update",
    "num_prompts_per_step",
    "problems_per_step",
    "problems_per_update",
    "groups_per_batch",
    "rollout_batch_size",
    "rollout.batch_size",
    "train_batch_size",
    "data.train_batch_size",
    "trainer.train_batch_size",
)
_BATCH = ("rollouts_per_step", "completions_per_step", "samples_per_step", "generation_batch_size")
_STEP = (
    "Step",
    "_step",
    "update_steps",
    "update_step",
    "M",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "training_step",
    "train_step",
)

COLUMNS: tuple[Column, ...] = (
    Column("run_id", "text", "name of the training run", _RUN),
    Column("group_size", "integer", "rollouts per problem in one update, n", _GROUP_SIZE, 1, per_run=True),
    Column("problems_per_batch", "integer", "problems per update, B_p", _PROBLEMS, 1, per_run=True),
    Column("seed", "integer", "seed of the run", per_run=True),
    Column("step", "number", "update steps done, 0 = base model", _STEP, 0),
    Column(
        "rollouts",
        "number",
        "rollouts sampled so far, C = n B_p M",
        ("C", "compute", "total_rollouts", "cumulative_rollouts"),
        0,
    ),
    Column("metric", "text", "name of the metric, kept as written"),
    Column("eval_set", "text", "name of the set the metric was measured on", ("set", "split")),
    Column("value", "number", "the measured value", ("reward",)),
    Column("tokens", "number", "tokens sampled so far", minimum=0),
    Column(
        "rollouts_spent", "number", "rollouts paid for so far, those of attempts that were given up included", minimum=0
    ),
    Column("gpu_seconds", "number", "GPU time used so far, seconds times GPUs", minimum=0),
    Column("framework", "text", "what trained the run: openrlhf, verl, trl, torch or another", per_run=True),
    Column("gpus", "integer", "GPUs of the run", ("n_gpus", "num_gpus"), 1, per_run=True, written=GPUS, spare=True),
    _context("model", "text", "base model", None, "model_name", "model_name_or_path", "base_model"),
    _context("train_data", "text", "training problems", None, "dataset_name", "dataset", "data_set"),
    _context("algorithm", "text", "grpo, ppo, cispo or another", None, "algo"),
    _context("learning_rate", "number", "peak learning rate", 0, "lr"),
    _context("kl_coef", "number", "coefficient of the KL term", None, "kl_coeff", "kl_loss_coef"),
    _context("entropy_coef", "number", "coefficient of the entropy bonus"),
    _context("updates_per_batch", "integer", "gradient updates per rollout batch", 1),
    _context("max_tokens", "integer", "most tokens in one response", 1, "max_completion_length", "max_response_length"),
    _context("eval_temperature", "number", "sampling temperature of the evaluation", 0),
    _context("eval_samples", "integer", "samples per problem in the evaluation", 1),
    _context("n_problems", "integer", "distinct training problems, D", 1, "num_problems"),
    _context("temperature", "number", "sampling temperature in training", 0, lenient=True),
    _context("top_p", "number", "nucleus sampling mass in training, 1 = everything", 0, lenient=True),
    _context("max_prompt_tokens", "integer", "longest prompt, tokens", 1, lenient=True),
    _context("filter", "text", "groups left out: none, zero-variance, dynamic (others sampled)", lenient=True),
    _context("off_policy", "text", "rollouts of older weights: none, async, or how stale they may be", lenient=True),
)
"""Every column, in the order of `RunSet.to_polars`."""

BATCH = Column("rollouts_per_batch", "integer", "rollouts per update, n B_p; instead of B_p", _BATCH, 1)
"""A column that is accepted on the way in, and gives `problems_per_batch`."""
PLACEHOLDERS = {"group_size": "N", "problems_per_batch": "BP", BATCH.name: "R", "updates_per_batch": "U"}
"""What stands for a number that a person has to fill in, in `--set group_size=N`."""
PROPOSE = "let `isocompute doctor PATH --output map.yaml` collect what files and the names of runs say"
PLAN_WITHOUT = "delete their rows from the table of isocompute doctor PATH --output part.csv, and plan that"


def batch_asked(sizes: Iterable[object]) -> str:
    """What to ask for where B_p is unknown: what all runs may share.

    Several n may have had one n B_p, as trainers that count completions keep it; one B_p for all would be wrong then.
    """
    return BATCH.name if len({str(size) for size in sizes}) > 1 else "problems_per_batch"


COUNTED_DIFFERENTLY = "train_batch_size"
"""Counts problems in veRL and SkyRL, rollouts in TRL and OpenRLHF: taken for problems, with a warning beside
`OTHER_COUNTS`."""
OTHER_COUNTS = ("num_generations", "n_samples_per_prompt", "rollout.n_samples_per_prompt")
"""Names of n in frameworks where `COUNTED_DIFFERENTLY` counts rollouts."""
WANDB_STEPS = ("_step", "Step")
"""W&B's own step, which counts calls of its `log`: the trainer's counts if both are there."""
CLOCKS = ("_runtime", "_timestamp", "timestamp", "wall_seconds", "wall_time", "Wall time", "elapsed_seconds")
"""Columns with the time of a row: two in which W&B counts seconds, and others of tables that programs write."""
STEP_SECONDS = "step_seconds"
"""Metric with the wall-clock seconds of an update."""
_WEAK = {"name": "run_id", "eval_step": "step"}
"""Names that stand for a column where no other name in the table does."""

_INPUT = (*COLUMNS, BATCH)
BY_NAME: dict[str, Column] = {column.name: column for column in _INPUT}
CONTEXT_FIELDS: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.context)
"""Fields that decide which runs may be pooled; unknown is None, and None pools with None."""
LENIENT: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.lenient)
"""Context fields in which None pools with every value."""
N_AND_BP = ("group_size", "problems_per_batch")
PER_RUN: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.per_run)
SAYS_ITSELF = re.compile(r"(avg|best|worst|pass|mean)@\d+|train_reward")
"""Names of metrics that say themselves what they hold."""
DEFAULT_EVAL_SET = "validation"
TRAIN_SETS = ("train", "train_probe")
"""Evaluation sets of training problems: what each update measured, and a fixed probe. Never chosen unasked where the
metric was also measured on held-out problems."""

_CANONICAL: dict[str, str] = {spelling: column.name for column in _INPUT for spelling in (column.name, *column.aliases)}


def bare(name: str) -> str:
    """The name without what W&B and Hydra put before a setting."""
    return re.sub(r"^(config|cfg|args|params|hparams|hyperparameters)[./]", "", name.strip(), flags=re.IGNORECASE)


def folded(name: str) -> str:
    """The bare name in small letters with `_` for other separators."""
    return re.sub(r"[\s-]+", "_", bare(name).lower())


# What is spent or measured is not told from its total by another spelling: `Tokens` may be those of one update.
_FOLDED: dict[str, str] = {
    folded(spelling): column.name
    for column in _INPUT
    if column.per_run or column.name in ("run_id", "step", "rollouts", "value", BATCH.name)
    for spelling in (column.name, *column.aliases)
}


_CLOCKS = {folded(name): name for name in CLOCKS} | {name: name for name in CLOCKS}


def canonical(name: str) -> str | None:
    """Canonical name of a known column or alias, in any case and with any separator; None for any other name."""
    return _CANONICAL.get(name) or _FOLDED.get(folded(name))


def spelled(name: str) -> str:
    """The name of a metric that says itself what it holds, or of a clock, in our spelling; any other as it is."""
    plain = folded(name)
    return plain if SAYS_ITSELF.fullmatch(plain) else _CLOCKS.get(plain, name)


def fields(names: Iterable[str]) -> dict[str, str | None]:
    """Name -> canonical name of its column, None for any other name.

    Of several names of one column, a weak one gives way and has None.
    """
    found = {name: canonical(name) for name in names}
    strong = {column for name, column in found.items() if name not in WANDB_STEPS}
    weak = {name: column for name in found if (column := _WEAK.get(folded(name))) not in {None, *found.values()}}
    return {name: None if name in WANDB_STEPS and column in strong else column for name, column in found.items()} | weak


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("s")


def misspelt(name: str) -> str | None:
    """The known column that `name` is most likely a slip of; None for a name that stands on its own.

    Strict on purpose: a numeric column of another name is a metric, so only near-identical names count.
    """
    if "@" in name or name in _CANONICAL:
        return None
    squeezed = _SQUEEZED.get(_squeezed(name))
    if squeezed is not None:
        return squeezed
    # Names of other lengths cannot be that near; tables may have thousands of columns.
    near = (spelling for spelling in _CANONICAL if len(spelling) >= 4 and 0.8 < len(name) / len(spelling) < 1.25)
    found = close(name, near, cutoff=0.9)
    return found if found is not None and alike(name, found) else None


def alike(name: str, other: str) -> bool:
    """Whether two names have as many words, each like its fellow: `mean_length` is no slip of `max_length`."""
    mine, theirs = (re.split(r"[^a-z0-9]+", text.lower()) for text in (name, other))
    return len(mine) == len(theirs) and all(close(a, [b]) is not None for a, b in zip(mine, theirs, strict=True))


_SQUEEZED = {_squeezed(spelling): spelling for spelling in reversed(_CANONICAL)}


def check_fields(fields: Iterable[str], accepted: Sequence[str], what: str) -> None:
    """Raise on any of `fields` that is not in `accepted`."""
    for name in fields:
        if name not in accepted:
            raise RecordError(
                f"{what}: received {name!r}; accepted: {', '.join(accepted[:40])}",
                f"{did_you_mean(str(name), accepted)}Use one of the accepted names.",
            )


NAN_HINT = (
    "Leave the cell empty (None) where nothing was measured; a run that produced NaN has failed and its "
    "rows should be dropped."
)


def row_in_memory(index: int) -> str:
    """Name of a row for somebody who passed arrays."""
    return f"row {index + 1} (index {index})"


@dataclass(frozen=True)
class Source:
    """Where a table came from: turns a row index into what the user sees."""

    locate: Callable[[int], str] = row_in_memory
    """Row index to a place, e.g. `runs.csv:12`."""
    written: Mapping[str, str] = field(default_factory=dict[str, str])
    """Canonical column name to the name the user wrote."""

    def cell(self, index: int, column: str) -> str:
        """Place of one cell."""
        return f"{self.locate(index)}, column {self.name(column)}"

    def name(self, column: str) -> str:
        """A column as the user wrote it, with the canonical name beside it where they differ."""
        written = self.written.get(column, column)
        return written if written == column else f"{written} ({column})"


class ArgumentSource(Source):
    """The place of a value given once for the whole table, as a keyword argument."""

    def cell(self, index: int, column: str) -> str:
        """Name of the argument."""
        return f"argument {self.written.get(column, column)}"


def to_series(name: str, values: object) -> pl.Series:
    """One column as a polars series; missing cells of pandas become null, nothing else is changed."""
    import polars as pl

    if isinstance(values, pl.Series):
        return values.alias(name)
    owner = type(values).__module__.split(".")[0]
    if owner == "pandas":
        series = cast(Any, values)
        if getattr(series, "ndim", 1) != 1:
            raise RecordError(f"column {name} appears more than once", "Give every column its own name.")
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iuf":
            return pl.Series(name, series.to_numpy()).fill_nan(None)
        # Arrays of pandas, such as those of its strings, have no `notna`; missing cells of either are NaN or NA.
        missing = series.isna()
        return _from_items(name, [None if gone else cell for cell, gone in zip(series.tolist(), missing, strict=True)])
    if owner == "pyarrow":
        return _from_items(name, cast(Any, values).to_pylist())
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise RecordError(
                f"column {name}: received an array of shape {values.shape}; accepted: one dimension",
                "Give one array per column.",
            )
        plain = values.dtype.kind in "iuf" and not np.ma.isMaskedArray(values)
        return pl.Series(name, np.array(values)) if plain else _from_items(name, values.tolist())
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise RecordError(
            f"column {name}: received {values!r}; accepted: a list or array with one entry per row",
            f"For one value that holds in every row, pass it as a keyword: from_columns(..., {name}=...).",
        )
    return _from_items(name, list(cast(Iterable[Any], values)))


def _from_items(name: str, items: list[Any]) -> pl.Series:
    import polars as pl

    try:
        series = pl.Series(name, items)
        if series.dtype != pl.Object:
            return series
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        if all(
            item is None or (isinstance(item, int | float | np.number) and not isinstance(item, bool)) for item in items
        ):
            # A whole number beyond floats is named below, like any other bad cell.
            with suppress(OverflowError):
                return pl.Series(name, [None if item is None else float(item) for item in items])
    # Mixed types: as text each cell is judged on its own, and the bad one can be named.
    return pl.Series(name, [None if item is None else str(item) for item in items], dtype=pl.String)


def typed(series: pl.Series, column: Column, source: Source) -> pl.Series:
    """Check every cell of `series` against `column` and give it the column's type; null stays null.

    Raises:
        RecordError: naming the first cell that cannot be read, its value and what is accepted.
    """
    import polars as pl

    series = series.alias(column.name)
    if column.kind == "text":
        if series.dtype.is_nested():
            _refuse(series.is_not_null(), series, column.name, source, column.accepted)
        texts = blank_to_null(series.cast(pl.String))
        # Tables are handed on: passwords are not.
        return texts.str.replace_all(LOGIN, "://") if texts.str.contains("://", literal=True).any() else texts
    if column.written is not None and series.dtype == pl.String:
        pattern = re.compile(rf"\s*{column.written}\s*", re.IGNORECASE)
        texts = series.filter(numbers_in(series).is_null())
        found = {text: match[1] for text in texts.drop_nulls().unique() if (match := pattern.fullmatch(text))}
        series = series.replace(found)
    numbers = to_numbers(series, column.name, source, column.accepted)
    if column.kind == "integer":
        whole = numbers.cast(pl.Int64, strict=False)  # null beyond 64 bits and for NaN
        if series.dtype.is_integer() or series.dtype == pl.String:
            # Read directly where possible, since float64 cannot tell large ones apart.
            digits = series.str.strip_chars() if series.dtype == pl.String else series
            whole = digits.cast(pl.Int64, strict=False).fill_null(whole)
        lost = numbers.is_not_null() & (whole.is_null() | (numbers.floor() != numbers))
        _refuse(lost, series, column.name, source, column.accepted)
        numbers = whole
    else:
        _refuse(~numbers.is_finite(), series, column.name, source, column.accepted)
    if column.minimum is not None:
        _refuse(numbers < column.minimum, series, column.name, source, column.accepted)
    return numbers if column.kind == "integer" else numbers + 0.0  # -0.0 and 0.0 are the same step


def to_numbers(series: pl.Series, column: str, source: Source, accepted: str) -> pl.Series:
    """`series` as float64, reading text; NaN and infinities pass.

    Raises:
        RecordError: naming the first cell that is not a number.
    """
    numbers = numbers_in(series)
    _refuse(numbers.is_null() & blank_to_null(series).is_not_null(), series, column, source, accepted)
    return numbers


def blank_to_null(series: pl.Series) -> pl.Series:
    """Text without white space around it, cells of nothing else null; columns of other kinds as they are."""
    import polars as pl

    if series.dtype != pl.String:
        return series
    stripped = pl.lit(series).str.strip_chars()
    return pl.select(pl.when(stripped != "").then(stripped).alias(series.name)).to_series()


_WITH_COMMA = r"^-?\d+,\d+$"


def refuse_commas(columns: Mapping[str, object], source: Source) -> None:
    """Raise on a column of text whose cells are numbers with a comma before their decimals."""
    import polars as pl

    for name, cells in columns.items():
        if not isinstance(cells, pl.Series) or cells.dtype != pl.String:
            continue
        commas = cells.str.contains(_WITH_COMMA)
        if commas.any() and numbers_in(cells.str.replace(",", ".")).null_count() == blank_to_null(cells).null_count():
            _refuse(commas, cells, name, source, "finite numbers")


def _refuse(bad: pl.Series, series: pl.Series, column: str, source: Source, accepted: str) -> None:
    index = bad.fill_null(False).arg_max() if bad.any() else None
    if index is None:
        return
    value = series[index]
    is_nan = str(value).strip().lower() in ("nan", "+nan", "-nan")
    hint = (
        "Write decimals with a point, and thousands without a comma."
        if re.fullmatch(_WITH_COMMA, str(value))
        else "Correct the value, or drop the row."
    )
    hint = in_shell = NAN_HINT if is_nan else hint
    options = ()
    if column in BY_NAME and BY_NAME[column].spare and not isinstance(source, ArgumentSource):
        name = source.written.get(column, column)
        options = (f"--ignore {quote(name)}",)
        # Not as two forms of one hint: a name may hold any character.
        hint, in_shell = (
            f"Correct the value, or leave the column out: {one}." for one in (f"ignore=[{name!r}]", *options)
        )
    more = int(bad.sum()) - 1
    also = f" ({counted(more, 'more such cell')} in this column)" if more else ""
    raise RecordError(
        f"{source.cell(index, column)}: received {value!r}{also}; accepted: {accepted}",
        hint,
    ).in_shell(in_shell, options)


CLOCK = 5e8
"""Seconds since 1970 are larger in every log of a training run, and no run has so many updates."""


def refuse_clock(steps: float | None, column: str) -> None:
    """Raise on steps that are clock times."""
    if steps is not None and steps >= CLOCK:
        raise RecordError(
            f"column {column!r} holds clock times, up to {steps:.6g}; accepted: update steps, below {CLOCK:g}",
            f"Add a column of update steps, and ignore=[{column!r}].",
        ).in_shell(f"Add a column of update steps, and --ignore {quote(column)}.")


def require(series: pl.Series, source: Source, hint: str) -> None:
    """Raise on null cells."""
    index = series.is_null().arg_max() if series.null_count() else None
    if index is not None:
        raise RecordError(f"{source.cell(index, series.name)}: the cell is empty", hint)


def unstated(given: Mapping[str, Any], stated: Container[str]) -> dict[str, Any]:
    """What is given for all runs without what a run states itself; n B_p stands for B_p."""
    columns = {name: canonical(name) or name for name in given}
    stands_for = {name: N_AND_BP[1] if column == BATCH.name else column for name, column in columns.items()}
    return {name: value for name, value in given.items() if stands_for[name] not in stated}


OnDuplicate = Literal["error", "last"]

MIN_TO_JUDGE = 3
"""Values in one run from which a column that never changes looks like a setting."""


@dataclass(frozen=True)
class Options:
    """How a table is to be read; see `RunSet.from_columns` for each."""

    metric: str | None = None
    eval_set: str | None = None
    on_duplicate: OnDuplicate = "error"
    ignore: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    constants: Mapping[str, object] = field(default_factory=dict[str, object])
    run_prefix: str = ""
    """Put before run ids that are made from the configuration."""
    lenient: bool = False
    """Leave columns of text out, and take a reward without a name for the training reward if a trainer's quantities
    stand beside it, else for an evaluation; each with a note."""
    without_sizes: bool = False
    """Put 1 instead of an unknown n or B_p."""
    run_name: str = "run"
    """Name of the only run of a table that says neither its name nor n."""
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Run -> columns that hold for it alone; a table is read as a log then."""
    step_unit: str | None = None
    """What the steps of a log of no known framework count."""

    def given(self, run: str) -> dict[str, Any]:
        """What was said of one run of a log, by columns."""
        columns = [canonical(name) or name for name in self.constants]
        check_fields(columns, (*PER_RUN, BATCH.name), "argument")
        shared = dict(zip(columns, self.constants.values(), strict=True))
        return {name: value for name, value in {**shared, **self.runs.get(run, {})}.items() if value is not None}

    @property
    def columns_set(self) -> list[str]:
        """Columns that have one value for all rows."""
        return [canonical(name) or name for name, value in self.constants.items() if value is not None]


@dataclass(frozen=True)
class Named:
    """A table with known and other columns separated."""

    known: dict[str, pl.Series]
    """Known columns by canonical name, as they came."""
    others: dict[str, pl.Series]
    """All other columns: metrics, if they are numeric."""
    source: Source
    notes: tuple[Note, ...] = ()
    """What was decided about columns that could mean two things."""

    @property
    def height(self) -> int:
        """Number of rows."""
        return len(next(iter((*self.known.values(), *self.others.values()))))

    @property
    def columns(self) -> str:
        """The columns as the user wrote them."""
        return ", ".join(self.source.written.values())


def wrong_column(message: str, hint: str, written: Sequence[str], rename: str | None = None) -> RecordError:
    """The error about columns that can be left out, or renamed to `rename`, with the options that would do it."""
    ignored = tuple(f"--ignore {quote(name)}" for name in written)
    renamed = "" if rename is None else f"--rename {quote(f'{written[0]}={rename}')} if it is, or "
    in_python = "" if rename is None else f"rename={{{written[0]!r}: {rename!r}}} if it is, or "
    before = f"{hint} " if hint else ""
    options = ignored if rename is None else (f"--rename {quote(f'{written[0]}={rename}')}",)
    error = RecordError(message, f"{before}Pass {in_python}ignore={list(written)!r}.", options)
    return error.in_shell(f"{before}Add {renamed}{' '.join(ignored)}.")


def given_twice(name: str, value: object, by_file: str, written: str) -> RecordError:
    """The error about a value for all runs where a column, as it is written, says another one."""
    message = f"{name} is given twice: as {by_file} and as {value!r} for every row"
    return wrong_column(message, f"Do not set {name}.", [written])


def numbers_in(series: pl.Series) -> pl.Series:
    """The numbers of a column, those in text too, as float64; null where a cell holds none.

    A column of percents, such as `13.7%`, holds fractions; one percent among other cells is no number.
    """
    import polars as pl

    if series.dtype.is_numeric():
        return series.cast(pl.Float64)
    if series.dtype != pl.String:
        return pl.repeat(None, len(series), dtype=pl.Float64, eager=True).alias(series.name)
    text = blank_to_null(series)
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() == text.null_count():
        return numbers
    percents = text.str.extract(r"^([-+.\d]+)\s*%$").cast(pl.Float64, strict=False)
    if percents.null_count() == text.null_count() < len(text):
        return percents / 100
    return numbers


def polars_type(name: str) -> pl.DataType:
    """The polars type of a column."""
    import polars as pl

    kinds: dict[str, pl.DataType] = {"text": pl.String(), "integer": pl.Int64(), "number": pl.Float64()}
    return kinds[BY_NAME[name].kind]
