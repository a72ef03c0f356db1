"""The corpus: real sweeps over n with their provenance, each one table and one YAML file.

A folder of the same form joins it: `NAME.csv` (or `NAME.parquet`), which `RunSet.read` reads without options, beside
`NAME.yaml` with the fields of `Provenance`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, NamedTuple

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs.base import Spec, Text
from isocompute_sdk.specs.syntax.plain_yaml import load_spec
from isocompute_sdk.specs.syntax.quantities import Items, Quantity

TABLES = (".csv", ".parquet")


class Provenance(Spec):
    """Where the runs of one sweep come from, and how they may be used."""

    title: Text
    """Name for tables."""
    source: Text
    """Publication and figure, repository and commit, or the program that trained the runs."""
    licence: Text
    """Under what the numbers may be used."""
    model: Text
    """Base model."""
    data: Text
    """Training problems."""
    algorithm: Text
    """Algorithm and what of the recipe is known."""
    differs: Text
    """What else differed between the runs, beside n and the seed."""
    read: Text
    """How the numbers were read, and how exactly."""
    family: Text
    """Unit that is left out as a whole where something is learned from sweeps."""
    group: Text
    """Line of the tables that the sweep belongs to."""
    metrics: Annotated[tuple[Text, ...], Items()]
    """Metrics that n is chosen for, one after the other."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Range of the metrics."""
    evaluation_sd: Quantity | None = None
    """Standard deviation of one evaluation, for drawn curves that carry no noise. None for measured evaluations."""
    targets: Annotated[tuple[Quantity, ...], Items()] | None = None
    """Budgets in rollouts that n is chosen for. None for the largest compute of any run."""


class RecordedSweep(NamedTuple):
    """One sweep of the corpus."""

    name: str
    runs: RunSet
    provenance: Provenance


def sweeps(folder: str | Path | None = None) -> tuple[RecordedSweep, ...]:
    """The real sweeps that ship, by name, or those of a folder in the same form.

    Raises:
        RecordError: a folder without sweeps, or a table without provenance.
        SpecError: provenance with a missing or unknown field.
    """
    place = Path(str(files("isocompute_sdk"))) / "laws" / "data" / "sweeps" if folder is None else Path(folder)
    tables = sorted(path for path in place.glob("*") if path.suffix in TABLES)
    if not tables:
        raise RecordError(
            f"{place}: no sweeps; accepted: a folder with NAME.csv (or .parquet) and NAME.yaml for each sweep",
            "isocompute list sweeps --help describes the form.",
        )
    return tuple(_read(path) for path in tables)


def holds_sweeps(folder: str | Path) -> bool:
    """Whether a folder has tables with provenance beside them."""
    return any(path.suffix in TABLES and path.with_suffix(".yaml").is_file() for path in Path(folder).glob("*"))


def _read(table: Path) -> RecordedSweep:
    beside = table.with_suffix(".yaml")
    if not beside.is_file():
        raise RecordError(
            f"{table}: no provenance; accepted: {beside.name} beside it",
            f"Write {beside.name} with {', '.join(Provenance.model_fields)}.",
        )
    return RecordedSweep(table.stem, RunSet.read(table), load_spec(beside, Provenance))
