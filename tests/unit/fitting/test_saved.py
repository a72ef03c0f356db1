"""Fits in files: those of the first release load to the last bit, damaged ones are refused."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from isocompute_sdk import FitError, Fits, IsoComputeError, RunSet
from isocompute_sdk.errors import DocumentError
from isocompute_sdk.fitting.fits import FITS

SAVED = Path(__file__).parent / "saved"
"""Fits of every method as the first release wrote them, and what they answered then."""
NAMES = ("paper", "surface", "published", "fixed-batch", "prior")
AT = np.geomspace(1e4, 1e7, 7)


def missing(old: Any, new: Any, where: str = "$") -> list[str]:
    """Places at which `new` does not hold what `old` holds; what `new` has besides is left alone."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            place
            for key, value in old.items()
            for place in (missing(value, new[key], f"{where}.{key}") if key in new else [f"{where}.{key}"])
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [place for i, one in enumerate(old) for place in missing(one, new[i], f"{where}[{i}]")]
    return [] if type(old) is type(new) and old == new else [where]


@pytest.mark.parametrize("name", NAMES)
def test_files_of_the_first_release_load_to_the_last_bit(name: str) -> None:
    path = SAVED / f"{name}.json"
    assert missing(json.loads(path.read_text()), json.loads(json.dumps(Fits.load(path).to_dict()))) == []


@pytest.mark.parametrize("name", NAMES)
def test_fits_of_the_first_release_answer_as_they_did(name: str) -> None:
    fits = Fits.load(SAVED / f"{name}.json")
    then = json.loads((SAVED / "answers.json").read_text())[name]
    now: dict[str, Any] = {f"law {law}": one.predict(AT) for law, one in fits.laws.items()}
    now |= {f"curve {n} {bp}": curve.predict(AT) for (n, bp), curve in fits.curves.items()}
    if fits.curves:
        best = fits.frontier(AT)
        now |= {"frontier_reward": best.reward, "frontier_n": best.group_size}
        now["mean"] = fits.predict(AT, 128 if fits.source else 8).mean
    interval = fits.law_interval(AT)
    if interval is not None and fits.surface is None:
        now["law_low"], now["law_high"] = interval
    assert [note.code for note in fits.notes] == then.pop("notes")
    assert set(now) == set(then)
    for key, values in then.items():
        np.testing.assert_allclose(now[key], values, rtol=1e-12, err_msg=key)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of everything in a document that is no container."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            yield from leaves(part, (*path, key))
    elif path:
        yield path


def mutated(raw: dict[str, Any], path: tuple[str | int, ...], change: str, number: float) -> dict[str, Any]:
    """A copy with one leaf changed."""
    found = deepcopy(raw)
    parent: Any = found
    for part in path[:-1]:
        parent = parent[part]
    values: dict[str, Any] = {
        "number": number,
        "whole": int(number),
        "not a number": float("nan"),
        "huge": 1.7e308,
        "many digits": 10**400,
        "tiny": 5e-324,
        "negative": -1,
        "text": "3",
        "shell": "$(id); rm -rf /",
        "list": [number, None],
        "mapping": {"a": number},
        "null": None,
        "true": True,
    }
    if change == "deleted":
        del parent[path[-1]]
    else:
        parent[path[-1]] = values[change]
    return found


CHANGES = (
    *("number", "whole", "not a number", "huge", "many digits", "tiny", "negative"),
    *("text", "shell", "list", "mapping", "null", "true", "deleted"),
)


def ask(fits: Fits) -> None:
    """What a loaded fit is asked for; refusals are answers."""
    fits.summary()
    fits.to_dict()
    for question in (
        lambda: fits.predict(1e6, 64),
        lambda: fits.predict([1e3, 1e8], 32, 64, level=0.5, kind="run"),
        lambda: fits.frontier(AT),
        lambda: fits.law_interval(AT),
        lambda: fits.law("group_size").predict(AT),
        lambda: fits.group_size_odds(1e6),
    ):
        with suppress(FitError):
            question()


@pytest.mark.parametrize(
    ("name", "times"), [("paper", 350), ("surface", 150), ("published", 200), ("fixed-batch", 200), ("prior", 200)]
)
def test_one_changed_value_gives_valid_fits_or_an_error_of_ours(name: str, times: int, tmp_path: Path) -> None:
    raw = json.loads((SAVED / f"{name}.json").read_text())
    alike: dict[tuple[str, ...], list[tuple[str | int, ...]]] = defaultdict(list)
    for path in leaves(raw):
        alike[tuple("[]" if isinstance(part, int) else part for part in path)].append(path)
    # A field first, then one of its numbers: draws and points would otherwise hide everything else.
    fields = list(alike.values())
    rng = np.random.default_rng(NAMES.index(name))
    refused: list[IsoComputeError] = []
    for _ in range(times):
        paths = fields[rng.integers(len(fields))]
        path, change = paths[rng.integers(len(paths))], CHANGES[rng.integers(len(CHANGES))]
        number = float(rng.normal() * 10.0 ** rng.integers(-3, 12))
        file = tmp_path / "changed.json"
        file.write_text(json.dumps(mutated(raw, path, change, number)))
        try:
            ask(Fits.load(file))
        except IsoComputeError as error:
            refused.append(error)
        except Exception as error:
            raise AssertionError(f"{path}, {change}, {number}: {error!r}") from error
    assert all(error.hint for error in refused)
    assert 20 < len(refused) < times - 20


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("paper", ("bounds",), [1.0, 0.0]),
        ("paper", ("laws", "group_size", "L"), -1.0),
        ("paper", ("laws", "group_size", "x"), "update_steps"),
        ("paper", ("laws", "group_size", "x_range"), [7.0, 4.0]),
        ("paper", ("laws", "group_size", "status"), "fine"),
        ("paper", ("curves", 0, "shape"), "surface"),
        ("paper", ("curves", 0, "parameters"), [1.0, 2.0, 3.0]),
        ("paper", ("curves", 0, "compute"), [1.0]),
        ("paper", ("curves", 0, "group_size"), 32),
        ("paper", ("curve_draws", 0, 0), 9),
        ("paper", ("law_draws", "group_size", 0), [1.0, 2.0, 3.0]),
        ("surface", ("bounds",), [0.0, 2.0]),
        ("surface", ("passport",), None),
        ("surface", ("surface",), None),
        ("surface", ("surface_points",), []),
        ("surface", ("surface_points", 0, 0), 32),
        ("surface", ("surface", "shapes", 0), "straight"),
        ("surface", ("surface", "shapes"), ["hill"]),
        ("surface", ("surface", "layout", "knots_K", 1), 9.0),
        ("surface", ("passport", "rise_seen"), [0.9, 0.1]),
        ("surface", ("method",), "paper"),
        ("prior", ("law_draws",), {"another": [[1.0, 1.0, 1.0, 1.0]]}),
        ("prior", ("grid",), [512, 8]),
    ],
)
def test_values_that_contradict_each_other_are_refused_by_name(
    name: str, path: tuple[str | int, ...], value: Any
) -> None:
    raw = json.loads((SAVED / f"{name}.json").read_text())
    parent = raw
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    with pytest.raises(DocumentError) as caught:
        Fits.from_dict(raw)
    assert caught.value.field
    assert caught.value.hint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("options", "bounds"), 3),
        (("options", "draws"), "many"),
        (("options", "pool"), {"a": 1}),
        (("options", "points"), "$(id)"),
        (("options", "surprise"), 1),
        (("options", "rng"), -1),
        (("runs", "columns"), []),
        (("runs", "columns", "value", 3), 10**400),
        (("runs", "columns", "value", 3), 1.7e308),
        (("runs", "columns", "rollouts", 3), "3"),
        (("runs", "columns", "group_size"), [8]),
        (("runs", "constants", "metric"), 3),
        (("runs",), {}),
    ],
)
def test_refitting_from_damaged_runs_or_options_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    raw = json.loads((SAVED / "paper.json").read_text())
    parent = raw
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    columns = {"n": [256] * 2, "bp": [32] * 2, "C": [1e5, 5e5], "reward": [0.36, 0.4]}
    more = RunSet.from_columns(columns, metric="avg@4", model="some/model", n_problems=6000)
    with pytest.raises(IsoComputeError):
        Fits.from_dict(raw).refit(more)


@pytest.mark.parametrize("name", NAMES)
def test_saved_fits_meet_their_json_schema(name: str) -> None:
    jsonschema.validate(json.loads((SAVED / f"{name}.json").read_text()), FITS.json_schema())
