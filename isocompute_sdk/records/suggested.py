"""What columns that nobody named may be: by what people call them, and by what they hold. Never taken unasked.

`refuse_without` says so in the error about a table that lacks a column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from isocompute_sdk.errors import RecordError
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.columns import MIN_TO_JUDGE, N_AND_BP, Named, numbers_in
from isocompute_sdk.records.reward_metrics import is_set, is_text, no_metric

if TYPE_CHECKING:
    import polars as pl


LIKELY: dict[str, str] = {
    "group_size": r"g|k|n(um)?_(samples|rollouts|gen.*)|samples|generations|gro?u?p(_?si?ze?)?",
    "problems_per_batch": r"b|p|bsz?|batch|batch_size|(n_|num_|batch_)?(prompts|problems|questions|qs)((_per_|/)\w+)?",
    "step": r"(\w+_)?steps?|(\w+_)?(it|its|iter|iters|iteration|iterations)|upd|updates?|t|step_idx",
    "rollouts": r"samples_seen|total_samples|episodes|total_episodes|num_rollouts_total",
}
"""What people call the columns that a table cannot do without."""


def suggested(wanted: str, present: Sequence[str]) -> str | None:
    """The column of the table that is most likely `wanted`."""
    column = schema.BY_NAME[wanted]
    likely = re.compile(LIKELY[wanted])
    near = (
        found
        for spelling in (wanted, *column.aliases)
        if (found := schema.close(spelling, present, cutoff=0.8)) is not None and schema.alike(found, spelling)
    )
    return next(near, None) or next((name for name in present if likely.fullmatch(schema.folded(name))), None)


def only_count(cells: Mapping[str, pl.Series]) -> str | None:
    """The one column of whole numbers from 0 up that mostly grows from row to row; None if there are several."""
    found: list[str] = []
    for name, column in cells.items():
        numbers = numbers_in(column)
        if numbers.null_count() or not len(numbers) or (numbers % 1 != 0).any():
            continue
        growing = int((numbers.diff() > 0).sum())
        if numbers.n_unique() > 2 and (numbers >= 0).all() and 2 * growing >= len(numbers):
            found.append(name)
    return found[0] if len(found) == 1 else None


def sizes_of_runs(known: Mapping[str, pl.Series], others: Mapping[str, pl.Series], step: str | None) -> list[str]:
    """Columns that may hold n: whole numbers that tell runs apart.

    Args:
        known: columns with a meaning, by their canonical name.
        others: the others, as the user called them.
        step: the one of them that counts steps, if none of `known` does.
    """
    import polars as pl

    settings = [cells for name, cells in known.items() if schema.BY_NAME[name].per_run]
    at = known.get("step") if step is None else others[step]
    rows = pl.DataFrame([one.alias(str(i)) for i, one in enumerate((at, *settings)) if one is not None])
    run, counts = known.get("run_id"), re.compile(rf"{LIKELY['step']}|{LIKELY['rollouts']}|(\w+_)?seed")
    found: list[str] = []
    for name, cells in others.items():
        numbers = numbers_in(cells).alias("n")
        whole = not numbers.null_count() and (numbers % 1 == 0).all() and (numbers > 0).all()
        if not whole or numbers.n_unique() < 2 or counts.fullmatch(schema.folded(name)):
            continue
        if run is not None:
            pairs = pl.DataFrame([run.alias("run"), numbers])
            # With one row of each run nothing tells a setting from a count.
            apart = pairs.n_unique() == run.n_unique() < pairs.height
        else:
            apart = rows.is_duplicated().any() and not rows.with_columns(numbers).is_duplicated().any()
        if apart:
            found.append(name)
    return found


def tells_apart(known: Mapping[str, pl.Series], others: Mapping[str, pl.Series]) -> tuple[str, str] | None:
    """A column that tells rows of one configuration and step apart, and what it is: `run_id` or `seed`.

    Args:
        known: columns with a meaning, by their canonical name.
        others: the others, as the user called them.

    Returns:
        None where no rows repeat each other, or no column tells all of them apart.
    """
    import polars as pl

    settings = [cells for name, cells in known.items() if schema.BY_NAME[name].per_run]
    places = [known[name] for name in ("step", "rollouts", "metric", "eval_set") if name in known]
    rows = pl.DataFrame([one.alias(str(i)) for i, one in enumerate((*places, *settings))])
    cells_of = [*others.values(), *([known["value"]] if "value" in known else [])]
    measured = (numbers_in(cells).is_not_null() for cells in cells_of)
    if "run_id" in known or not places or not any(rows.filter(there).is_duplicated().any() for there in measured):
        return None
    numbered = {name: bool((numbers_in(cells) % 1 == 0).all()) for name, cells in others.items()}
    # A name that is text says more than a number.
    for name in sorted(others, key=lambda name: numbered[name]):
        cells, apart = others[name].alias("apart"), rows.with_columns(others[name].alias("apart"))
        text = cells.dtype == pl.String and bool(numbers_in(cells).is_null().all())
        if not text and not (numbered[name] and _NUMBERED.search(schema.folded(name))):
            continue
        if cells.null_count() or apart.is_duplicated().any():
            continue
        runs = apart.drop(str(i) for i in range(len(places))).n_unique()
        if runs == cells.n_unique() or numbered[name]:
            return name, "run_id" if runs == cells.n_unique() else "seed"
    return None


def changes_within(
    message: str, hint: str, others: Mapping[str, pl.Series], changed: pl.Series, own: str | None
) -> RecordError:
    """The error about a run with two values of a setting: several runs of one name, if a column of text tells so.

    Args:
        message: what changes.
        hint: what to do if there is no such column.
        others: columns without a known meaning in the rows of the run, as the user called them.
        changed: the setting in these rows.
        own: the column with the name of the run.
    """
    import polars as pl

    for name, cells in others.items():
        parts = pl.DataFrame([cells.alias("part"), changed.alias("of")]).n_unique()
        if name == own or not is_text(cells) or cells.null_count() or MIN_TO_JUDGE * parts > len(cells):
            continue
        if cells.n_unique() == parts:
            renamed = f"--rename {quote(f'{name}=run_id')}"
            beside = [] if own is None or schema.canonical(own) is None else [own]
            words = (renamed, *(f"--ignore {quote(one)}" for one in beside))
            in_python = f"rename={{{name!r}: 'run_id'}}{f', ignore={beside!r}' if beside else ''}"
            error = RecordError(message, f"If column {name!r} names the runs, pass {in_python}.", words)
            return error.in_shell(f"If column {name!r} names the runs, add {' '.join(words)}.")
    return RecordError(message, hint)


_NUMBERED = re.compile(r"(^|_)(id|job|run|trial|seed|rep|repeat|replicate|number)(_|$)")
"""Words in names of columns that number runs."""

_IN_NAMES = {
    "group_size": r"n|g|gs|group(?:_?size)?|num_generations",
    "problems_per_batch": r"b|b_?p|bs|batch(?:_?size)?|problems(?:_per_batch)?",
}
"""What sizes are called in names such as `n8-bp16` and `n=8_B=16`."""


def size_in_name(name: str, field: str) -> tuple[int, str] | None:
    """The n or B_p that the name of a run says, and the words that say it, if it says one number for it."""
    words = _IN_NAMES.get(field, "(?!)")
    said = re.findall(rf"(?<![a-z0-9])((?:{words})[=_-]?(\d+))(?![a-z0-9.])", name, re.IGNORECASE)
    return (int(said[0][1]), said[0][0]) if len(said) == 1 and int(said[0][1]) else None


def against_names(given: Mapping[str, Mapping[str, Any]]) -> list[Note]:
    """A warning for each of n and B_p that was given for all runs and that the names of some say differently.

    Args:
        given: run -> what was given for all runs and is used for this one.
    """
    notes: list[Note] = []
    for field in N_AND_BP:
        of_runs = {run: float(values[field]) for run, values in given.items() if values.get(field) is not None}
        said = {run: said for run in of_runs if (said := size_in_name(run, field)) is not None}
        other = {run: words for run, (size, words) in said.items() if size != of_runs[run]}
        if not other:
            continue
        value = next(iter(of_runs.values()))
        shown = listed([f"{run} ({words})" for run, words in other.items()], 4)
        message = (
            f"{field} = {value:g} was given for all runs, and names say otherwise: {shown}. If the names are right, "
            f"leave {field} out: what is asked then shows how to take it from a column or from the names."
        )
        data = {"field": field, "given": value, "names": other}
        notes.append(Note("sources-disagree", "warning", message, data))
    return notes


_WANTED = {
    "group_size": "group_size (or n)",
    "rollouts": "rollouts (or C, compute) or step",
    "problems_per_batch": "problems_per_batch (or bp), without which rollouts cannot be computed from steps",
}


def _likely(
    wanted: Iterable[str], others: Mapping[str, pl.Series], batch: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Columns that are likely those that are wanted, with the names to give them; and what is to be asked instead."""
    renamed: dict[str, str] = {}
    values: dict[str, str] = {}
    for name in wanted:
        accepted = ("step", "rollouts") if name == "rollouts" else (name,)
        setting, left = schema.BY_NAME[name].per_run, list[str]()
        for column, cells in others.items():
            numbers = numbers_in(cells).drop_nulls()
            counts = len(numbers) >= MIN_TO_JUDGE and 2 * numbers.n_unique() > len(numbers)
            # A setting has few different values.
            if len(numbers) and not (counts and setting) and column not in renamed:
                left.append(column)
        found = next(((column, one) for one in accepted if (column := suggested(one, left)) is not None), None)
        if found is None and name == "rollouts":
            only = only_count({column: others[column] for column in left})
            found = None if only is None else (only, "step")
        if found is not None:
            renamed[found[0]] = found[1]
        elif name != "rollouts":
            asked = batch if name == "problems_per_batch" else name
            values[asked] = schema.PLACEHOLDERS[asked]
    return renamed, values


_BATCHES = re.compile(r"b|bsz?|batch|.*batch_?size", re.IGNORECASE)
"""Names that some use for B_p and some for n B_p."""


def _grows_with(batches: pl.Series, sizes: pl.Series) -> bool:
    """Whether a column is n times one number, for several n: then it counts rollouts."""
    batch, n = numbers_in(batches), numbers_in(sizes)
    return n.n_unique() > 1 and (batch / n).n_unique() == 1


def _other_count(column: str, taken: str) -> str:
    """What a column of batches may hold instead of what it is taken for, and how to say so."""
    other, counts = "problems_per_batch", "only problems"
    if taken == other:
        other, counts = schema.BATCH.name, "all rollouts, n x B_p"
    return f" If {column} counts {counts}: --rename {quote(f'{column}={other}')}."


def batch_of_runs(named: Named) -> str | None:
    """The column that is B_p by its name and has one number in each run; None without any."""
    others = {named.source.written[name]: cells for name, cells in named.others.items()}
    n = None if "group_size" in named.known else suggested("group_size", [*others])
    settings = [cells for name, cells in named.known.items() if name == "run_id" or schema.BY_NAME[name].per_run]
    settings += [] if n is None else [others.pop(n)]
    return suggested("problems_per_batch", [name for name, cells in others.items() if is_set(settings, cells)])


def _tell_runs(
    known: Mapping[str, pl.Series], others: Mapping[str, pl.Series], renamed: dict[str, str], values: dict[str, str]
) -> tuple[list[str], list[str], dict[str, tuple[int, str]]]:
    """Take the columns that name the runs and that hold n into `renamed`, as far as cells and names tell them.

    Args:
        known: columns with a meaning, by their canonical name.
        others: the others, as the user called them.
        renamed: those of them that are taken for something.
        values: what is to be asked; n no longer if a column holds it.

    Returns:
        Columns that may hold n; without a certain one also the runs, and what their names say of n.
    """
    step = {ours: theirs for theirs, ours in renamed.items()}.get("step")
    sizes = sizes_of_runs(known, others, step) if "group_size" in values else []
    if len(sizes) == 1:
        del values["group_size"]
        renamed[sizes[0]] = "group_size"
    left_over = {column: cells for column, cells in others.items() if column not in renamed}
    apart = tells_apart({**known, **{ours: others[theirs] for theirs, ours in renamed.items()}}, left_over)
    renamed |= {} if apart is None else {apart[0]: apart[1]}
    ids = known.get("run_id") if apart is None or apart[1] != "run_id" else others[apart[0]]
    if "group_size" not in values or ids is None:
        return sizes, [], {}
    names = list(map(str, ids))
    said = {name: said for name in names if (said := size_in_name(name, "group_size")) is not None}
    places = {} if step is None else {step: others[step]}
    sizes = sizes_of_runs({**known, "run_id": ids}, left_over | places, step)
    sizes_N = [said[name][0] if name in said else None for name in names]
    sizes = [one for one in sizes if numbers_in(others[one]).to_list() == sizes_N] or sizes
    if len(sizes) == 1:
        del values["group_size"]
        renamed[sizes[0]] = "group_size"
        return sizes, [], {}
    runs = list(dict.fromkeys(names))
    return sizes, runs, said if len(runs) > 1 else {}


_EITHER = " if all runs share n x B_p, or as problems_per_batch=... if they share B_p"


def refuse_without(unknown: Sequence[str], named: Named, batch_column: str | None = None, *, sized: bool) -> None:
    """Raise on columns that a table cannot do without, with the options that would give what is unknown.

    Without `sized`, no numbers are asked for n and B_p: only columns that may hold them are named, such as
    `batch_column`, see `batch_of_runs`.
    """
    source = named.source
    present = list(source.written.values())
    others = {source.written[name]: cells for name, cells in named.others.items()}
    numeric = {name: cells for name, cells in others.items() if numbers_in(cells).is_not_null().any()}
    if "value" not in named.known and numeric.keys() <= {only_count(numeric)}:
        raise no_metric(named)
    batch = schema.batch_asked(named.known["group_size"].unique().to_list() if "group_size" in named.known else ())
    needed = unknown if sized else ["rollouts"]
    # A count of rollouts would do without B_p.
    absent = [name for name in ("group_size", "rollouts") if name in needed] or needed
    renamed, values = _likely([name for name in _WANTED if name in unknown], others, batch)
    renamed |= {} if batch_column is None else {batch_column: "problems_per_batch"}
    sized_by = next((one for one, ours in renamed.items() if ours == N_AND_BP[1] and _BATCHES.fullmatch(one)), "")
    if sized_by and "group_size" in named.known and _grows_with(others[sized_by], named.known["group_size"]):
        renamed[sized_by] = schema.BATCH.name
    sizes, runs, said = _tell_runs(named.known, others, renamed, values)
    # One n for all runs would be wrong for most of those whose names say it. Steps tell which column may hold it.
    asked = sized and not said and bool({"step", "rollouts"} & {*named.known, *renamed.values()})
    values = {name: one for name, one in values.items() if sized and (asked or name != "group_size")}
    options = (
        *(f"--rename {quote(f'{theirs}={ours}')}" for theirs, ours in renamed.items()),
        *(f"--set {name}={value}" for name, value in values.items()),
    )
    guess = f"rename={renamed!r}" if renamed else ""
    given = ", ".join(f"{name}=..." for name in values) + _EITHER * (schema.BATCH.name in values)
    say = (
        [f"If that is what {', '.join(map(repr, renamed))} {'is' if len(renamed) == 1 else 'are'}, pass {guess}"]
        if guess
        else []
    )
    say += [f"give one value for all rows as {given}"] if given else []
    by_name = "".join(f"{run!r}: {{'group_size': {n}}}, " for run, (n, _) in [*said.items()][:1])
    say += [f"give each run the n that its name suggests as runs={{{by_name}...}}"] if said and sized else []
    say += [f"if it is something else, pass ignore={[batch_column]!r}"] if batch_column is not None else []
    hint = "; ".join(say) or "Add a column step, or the rollouts as C"
    in_shell = f"Add {' '.join(options)}." if options else f"{hint}."
    if schema.BATCH.name in values:
        shared = f"--set problems_per_batch={schema.PLACEHOLDERS['problems_per_batch']} if they share B_p"
        in_shell = f"{in_shell[:-1]} if all runs share n x B_p, or {shared}."
    if sized and len(runs) > 1:
        stepped = "step" in {*named.known, *renamed.values()}
        collect = schema.PROPOSE if stepped else "add a column group_size, with the n of each run"
        words = list(dict.fromkeys(word for _, word in said.values()))
        suggests = f"To confirm what the names suggest ({listed(words, 3)}), {collect}."
        in_shell = suggests if said else f"{in_shell[:-1]} if all runs share it, or {collect}."
    if sized_by:
        in_shell += _other_count(sized_by, renamed[sized_by])
    in_shell += "" if batch_column is None else f" If it is something else: --ignore {quote(batch_column)}."
    if len(sizes) > 1 and sized:
        in_shell += f" If {' or '.join(sizes)} holds n, --rename COLUMN=group_size instead of --set group_size=N."
    if "rollouts" in absent and not {"step", "rollouts"} & set(renamed.values()):
        in_shell += " If another column counts updates: --rename THEIRS=step; if it counts rollouts: --rename THEIRS=C."
    raise RecordError(
        f"{' and '.join(f'no column {_WANTED[name]}' for name in absent) or f'column {batch_column!r} may be B_p'}"
        f"; the table has: {', '.join(present)}",
        f"{hint[0].upper()}{hint[1:]}.",
        options=options,
    ).in_shell(in_shell)
