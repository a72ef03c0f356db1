"""Fits in files: those that earlier releases wrote still load, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute_sdk import Fits

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
