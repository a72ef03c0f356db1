"""Fits in files: they are read to the last bit, and values that contradict each other are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from isocompute_sdk import Fits, IsoComputeError, RunSet, fit, published, published_prior, refit
from isocompute_sdk.documents import digest_of
from isocompute_sdk.errors import DocumentError
from isocompute_sdk.fitting.fits import FITS
from tests.parameters import few

AT = np.geomspace(1e4, 1e7, 7)
NAMES = ("paper", "surface", "published", "prior")


@pytest.fixture(scope="module")
def saved(make_runs: Callable[..., RunSet]) -> dict[str, Fits]:
    """Fits of every method."""
    runs = make_runs(model="some/model", n_problems=6000)
    return {
        "paper": fit(runs, draws=4, method="paper"),
        "surface": fit(runs, draws=4),
        "published": published("qwen2.5-7b-instruct/guru-math-easy"),
        "prior": published_prior(),
    }


def damaged(fits: Fits, path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Fits with one value replaced and the digest of what they hold now, as a faulty writer would save them."""
    raw = json.loads(json.dumps(fits.to_dict()))
    parent = raw
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    del raw["digest"]
    return {**raw, "digest": digest_of(raw)}


@pytest.mark.parametrize("name", few(NAMES, {"surface", "paper"}))
def test_saved_fits_are_read_to_the_last_bit_and_answer_alike(
    saved: dict[str, Fits], name: str, tmp_path: Path
) -> None:
    fits = saved[name]
    path = fits.save(tmp_path / "fits.json")
    again = Fits.load(path)
    assert again == fits
    assert again.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    jsonschema.validate(json.loads(path.read_text()), FITS.json_schema())
    for law, one in fits.laws.items():
        assert again.laws[law].predict(AT).tolist() == one.predict(AT).tolist()
    # No runs with different numbers of training problems: predictions are the same for any.
    assert again.for_problem_set(100) is again
    if name in ("paper", "surface"):
        assert again.handovers() == fits.handovers()
        for ours, theirs in zip(again.predict(AT, 32), fits.predict(AT, 32), strict=True):
            assert ours.tobytes() == theirs.tobytes()


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
        ("prior", ("law_draws", "group_size", 0), [1.0, 2.0, 3.0]),
        ("surface", ("bounds",), [0.0, 2.0]),
        ("surface", ("passport",), None),
        ("surface", ("surface",), None),
        ("surface", ("surface_points",), []),
        ("surface", ("surface_points", 0, "group_size"), 32),
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
    saved: dict[str, Fits], name: str, path: tuple[str | int, ...], value: Any
) -> None:
    with pytest.raises(DocumentError) as caught:
        Fits.from_dict(damaged(saved[name], path, value))
    assert caught.value.field
    assert caught.value.hint


def test_of_many_wrong_values_the_first_are_named_and_the_rest_are_counted(saved: dict[str, Fits]) -> None:
    with pytest.raises(DocumentError) as caught:
        Fits.from_dict(damaged(saved["paper"], ("notes",), ["wrong"] * 20))
    named = caught.value.message.count("received 'wrong'")
    assert 0 < named < 20
    assert re.findall(r"\d+", caught.value.message.splitlines()[-1]) == [str(20 - named)]


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
def test_refitting_from_damaged_runs_or_options_is_refused(
    saved: dict[str, Fits], path: tuple[str | int, ...], value: Any
) -> None:
    columns = {"n": [256] * 2, "bp": [32] * 2, "C": [1e5, 5e5], "reward": [0.36, 0.4]}
    more = RunSet.from_columns(columns, metric="avg@4", model="some/model", n_problems=6000)
    with pytest.raises(IsoComputeError):
        refit(Fits.from_dict(damaged(saved["paper"], path, value)), more)
