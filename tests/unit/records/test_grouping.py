"""Which runs an audit lets stand on one frontier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import isocompute_sdk as iso
from isocompute_sdk.cli.app import app
from isocompute_sdk.records import CONTEXT_FIELDS
from isocompute_sdk.records.grouping import differences, group_runs
from isocompute_sdk.records.runset import RunInfo


def run(name: str, n: int = 8, bp: int | None = 32, **context: Any) -> RunInfo:
    full = {field: context.get(field) for field in CONTEXT_FIELDS}
    return RunInfo(name, n, bp, 0, 1e6, 10, full)


def names(groups: Any) -> list[set[str]]:
    return [{one.run_id for one in group.runs} for group in groups]


def test_models_are_never_compared_and_the_reason_is_named() -> None:
    first, second = group_runs([run("a", model="x"), run("b", model="x"), run("c", model="y")])
    assert names([first, second]) == [{"a", "b"}, {"c"}]
    assert differences(second, first) == {"model": ("y", "x")}


def test_an_unstated_field_is_taken_for_granted_where_one_group_fits_and_noted() -> None:
    (group,) = group_runs([run("a", model="x", kl_coef=0.0), run("b", model="x")])
    assert group.context["kl_coef"] == 0.0
    assert group.pooled == ("kl_coef",)
    (note,) = group.notes
    assert (note.code, note.data["fields"], note.data["runs"]) == ("context-taken-for-granted", ["kl_coef"], ["b"])


def test_an_unstated_field_that_two_groups_fit_keeps_a_run_apart() -> None:
    groups = group_runs([run("a", model="x"), run("b", model="x"), run("c", model="y"), run("d")])
    assert names(groups) == [{"a", "b"}, {"c"}, {"d"}]


def test_learning_rates_of_one_rule_are_pooled_and_others_are_not() -> None:
    sizes = (8, 32, 128)
    by_rule = [run(f"n{n}", n, learning_rate=1e-6 * (n * 32 / 1024) ** 0.5) for n in sizes]
    (group,) = group_runs(by_rule)
    assert group.pooled == ("learning_rate",)
    free = [run(f"n{n}", n, learning_rate=rate) for n, rate in zip(sizes, (1e-6, 5e-6, 1e-6), strict=True)]
    assert names(group_runs(free)) == [{"n8", "n128"}, {"n32"}]
    assert names(group_runs(free, pool=("learning_rate",))) == [{"n8", "n32", "n128"}]


def test_different_rewards_at_step_0_keep_runs_apart_whatever_the_columns_say() -> None:
    runs = [run(name, n, model="task/model") for name, n in (("a", 4), ("b", 16), ("c", 64))]
    bases = {"a": 0.30, "b": 0.31, "c": 0.55}
    groups = group_runs(runs, base_rewards=bases, noise=0.02)
    assert names(groups) == [{"a", "b"}, {"c"}]
    assert "step 0" in next(iter(differences(groups[1], groups[0])))
    assert len(group_runs(runs, base_rewards=bases, noise=0.2)) == 1
    # A field that was pooled is not what keeps them apart.
    runs[2] = run("c", 64, model="task/model", n_problems=10)
    runs[:2] = (run(one.run_id, one.group_size, model="task/model", n_problems=20) for one in runs[:2])
    groups = group_runs(runs, ("n_problems",), bases, 0.02)
    assert "step 0" in next(iter(differences(groups[1], groups[0], ("n_problems",))))


@given(st.permutations(range(9)), st.data())
def test_the_order_of_runs_does_not_matter(order: list[int], data: st.DataObject) -> None:
    models = data.draw(st.lists(st.sampled_from(["x", "y", None]), min_size=9, max_size=9))
    rates = data.draw(st.lists(st.sampled_from([1e-6, 2e-6, None]), min_size=9, max_size=9))
    runs = [run(f"r{i}", 8, model=models[i], learning_rate=rates[i]) for i in range(9)]
    found = names(group_runs(runs))
    assert found == names(group_runs([runs[i] for i in order]))
    assert sorted(np.concatenate([sorted(group) for group in found]).tolist()) == [f"r{i}" for i in range(9)]


def test_a_fit_says_which_runs_an_audit_keeps_apart_and_how_to_fit_one_group(tmp_path: Path) -> None:
    compute = np.geomspace(1_000, 64_000, 12)
    rows: dict[str, list[Any]] = {name: [] for name in ("run_id", "n", "B_p", "C", "avg@4")}
    for name, n, start in (("a", 8, 0.2), ("b", 32, 0.2), ("c", 8, 0.5)):
        rows["run_id"] += [name] * 13
        rows["n"] += [n] * 13
        rows["B_p"] += [4] * 13
        rows["C"] += [0.0, *compute]
        rows["avg@4"] += [start, *(start + 0.3 * compute / (compute + 9_000))]
    runs = iso.RunSet.from_columns(rows)
    (note,) = [note for note in iso.fit(runs).notes if note.code == "context-taken-for-granted"]
    assert [list(part) for part in note.data["groups"]] == [["a", "b"], ["c"]]
    assert not [note for note in iso.fit(runs, pool=("model",)).notes if note.code == "context-taken-for-granted"]
    runs.to_polars().write_parquet(tmp_path / "runs.parquet")
    told = note.message.partition("isocompute doctor RUNS ")[2].partition(" --output")[0].split()
    part = str(tmp_path / "part.parquet")
    assert CliRunner().invoke(app, ["doctor", str(tmp_path / "runs.parquet"), *told, "-o", part]).exit_code == 0
    assert sorted(run.run_id for run in iso.read(part).runs()) == ["a", "b"]
