"""Counting rollouts: changes of rate, filtered samples, resumes. The claims are compared with counting one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.ingest.attempts import Counter, Extent, attempt_at, limits, split_attempts, wasted_before

rates = st.integers(1, 10_000)
changes = st.lists(st.integers(1, 60), unique=True, max_size=4).map(sorted)


@given(changes, st.data())
def test_a_change_of_rate_accumulates_piece_by_piece(at: list[int], data: st.DataObject) -> None:
    starts = [0, *at]
    rate = [data.draw(rates) for _ in starts]
    counter = Counter.of_pieces(starts, rate)
    total = 0
    for step in range(1, 80):
        # The update that leads to `step` runs under what held after the change before it.
        total += rate[max(i for i, start in enumerate(starts) if start < step)]
        assert counter.at(np.array([float(step)]))[0] == total


@given(changes, st.lists(st.integers(1, 500), min_size=80, max_size=80), st.data())
def test_logged_rates_count_where_they_were_logged(at: list[int], logged: list[int], data: st.DataObject) -> None:
    starts = [0, *at]
    rate = [data.draw(rates) for _ in starts]
    first, last = sorted(data.draw(st.lists(st.integers(1, 80), min_size=2, max_size=2, unique=True)))
    step_T = np.arange(first, last + 1, dtype=np.float64)
    counter = Counter.of_pieces(starts, rate).refined(step_T, np.array(logged[: len(step_T)], dtype=np.float64))
    total = 0
    for step in range(1, 90):
        own = rate[max(i for i, start in enumerate(starts) if start < step)]
        total += logged[step - first] if first <= step <= last else own
        assert counter.at(np.array([float(step)]))[0] == total


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
    counter = Counter.of_pieces([0], [rate])
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


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_attempts_are_the_longest_parts_in_which_steps_do_not_go_down(steps: list[int]) -> None:
    bounds = [*split_attempts(np.array(steps, dtype=np.float64)), len(steps)]
    parts = [steps[a:b] for a, b in pairwise(bounds)]
    assert [step for part in parts for step in part] == steps
    assert all(part == sorted(part) for part in parts)
    assert all(one[-1] > other[0] for one, other in pairwise(parts))
