"""Counting rollouts: filtered samples, resumes. The claims are compared with counting one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.ingest.attempts import Counter, attempt_at, attempt_of_steps, running_total, wasted_before
from isocompute_sdk.ingest.formats.log_format import Attempt, Extent, RunLog, limits


def constant(rate: int) -> Counter:
    return Counter.of_totals(np.zeros(0), np.zeros(0), rate)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 30)), min_size=1, max_size=5), st.integers(1, 20))
def test_what_is_spent_is_every_update_that_was_ever_made(plan: list[tuple[float, int]], rate: int) -> None:
    """Each attempt goes on from somewhere on the path before it and makes some updates."""
    attempts: list[Extent] = []
    reached, made = 0, 0
    for share, updates in plan:
        start = int(share * reached) if attempts else 0
        reached = start + updates
        made += updates
        attempts.append(Extent(float(start), float(reached)))
    counter = constant(rate)
    wasted = wasted_before(attempts, [counter] * len(attempts))
    assert counter.at(np.array([float(reached)]))[0] + wasted[-1] == made * rate
    steps = np.arange(0, reached + 1, dtype=np.float64)
    spent = counter.at(steps) + wasted[attempt_at(steps, attempts)]
    assert (np.diff(spent) > 0).all()
    # No attempt counts beyond the step from which a later one went on.
    ends = limits(attempts)
    for i, attempt in enumerate(attempts[:-1]):
        assert ends[i] <= attempt.last
    assert ends[-1] == np.inf


@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 5), st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_rates_that_were_logged_count_as_far_back_as_the_one_before_them(
    rate: int, first: int, every: int, logged: list[int]
) -> None:
    step_T = first + every * np.arange(len(logged), dtype=np.float64)
    counter = constant(rate).refined(step_T, np.array(logged, dtype=np.float64))
    usual = every if len(logged) > 1 else 1
    generated = [0]
    for update in range(1, int(step_T[-1]) + 4):
        covered = first - usual < update <= step_T[-1]
        generated.append(generated[-1] + (logged[max(-(-(update - first) // every), 0)] if covered else rate))
    assert counter.at(np.arange(len(generated), dtype=np.float64)).tolist() == generated


def test_what_is_lost_is_counted_once_where_a_resume_logs_nothing() -> None:
    """Ten updates, two resumes from update 6 of which the first dies at once, then two starts from the beginning."""
    counter = constant(8)
    attempts = [Extent(0, 10), Extent(6, 6), Extent(6, 9), Extent(0, 0), Extent(0, 2)]
    assert wasted_before(attempts, [counter] * 5).tolist() == [0, 32, 32, 32 + 72, 32 + 72]


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=12))
def test_a_sum_along_the_updates_holds_those_that_a_log_left_out(amounts: list[float | None]) -> None:
    known = [(step, amount) for step, amount in enumerate(amounts, start=1) if amount is not None]
    step_T = np.array([step for step, _ in known], dtype=np.float64)
    amount_T = np.array([amount for _, amount in known], dtype=np.float64)
    at_T = np.arange(len(amounts) + 2, dtype=np.float64)
    found = running_total(step_T, amount_T, at_T)
    assert found[0] == 0.0
    # A log of a later part alone says nothing of what came before it.
    counted = bool(known) and step_T[0] <= (np.median(np.diff(step_T)) if len(known) > 1 else 1)
    assert np.isnan(found[1:]).tolist() == [not counted or step > step_T[-1] for step in at_T[1:]]
    used_T = np.diff(found)
    for step, amount in known if counted else []:
        assert used_T[step - 1] == pytest.approx(amount, abs=1e-9)
    if counted:
        assert np.all(used_T[: len(used_T) - 1][~np.isnan(used_T[:-1])] <= amount_T.max() + 1e-9)
        assert np.nanmin(used_T) >= amount_T.min() - 1e-9
    assert np.isnan(running_total(step_T, amount_T, np.array([0.5])))


def test_an_attempt_that_logged_nothing_begins_where_the_one_before_it_ended() -> None:
    first, last = (
        attempt_of_steps(Path("a"), [(step, {"train/reward": 0.5}) for step in steps])
        for steps in (range(1, 10), range(10, 13))
    )
    between = Attempt(Path("a"), {}, 1.0, None, ())
    resumed = replace(between, from_step=6.0)
    log = RunLog("a", Path("a"), "tensorboard", (first, between, resumed, last))
    assert log.extents == (Extent(0, 9), Extent(9, 9), Extent(6, 6), Extent(9, 12))
    assert log.series("train/reward").step_T.tolist() == [*range(1, 7), 10, 11, 12]
