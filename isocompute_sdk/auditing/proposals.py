"""`proposals`: the few runs that would settle what an audit leaves open."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.auditing.result import ProposedRun, RunAudit, SizeComparison
from isocompute_sdk.auditing.standing import Field
from isocompute_sdk.auditing.words import count
from isocompute_sdk.planning.pilot import SHARE, pilot_sweep

MOST = 4
USUAL_PROBLEMS = 32
"""B_p if the runs do not state theirs: the smallest of the paper's sweeps."""
FEWEST_STEPS = 20
"""Fewest update steps of a proposed run: shorter runs hardly leave their warm-up."""
AROUND = (1 / 4, 4, 16)
"""Group sizes proposed beside a single n, as factors of it: two octaves apart, as in a pilot sweep."""


def proposals(known: Field, runs: Sequence[RunAudit], comparisons: Sequence[SizeComparison]) -> tuple[ProposedRun, ...]:
    """At most `MOST` runs, most informative first."""
    sizes = known.fits.group_sizes
    if len(sizes) == 1:
        return _other_levels(runs, sizes[0])[:MOST]
    found = [*_second_runs(runs, comparisons), *_edge(known, runs, comparisons), *_longer(known, runs)]
    return tuple(found[:MOST])


def _other_levels(runs: Sequence[RunAudit], n: int) -> tuple[ProposedRun, ...]:
    """For a single n: group sizes around it, at the length of the longest run."""
    longest = max(run.rollouts for run in runs)
    problems = _usual_problems(runs)
    levels = tuple(int(n * factor) for factor in AROUND if n * factor >= 2)
    # pilot_sweep takes a share of a budget; this budget gives runs as long as the existing ones.
    sweep = pilot_sweep(longest * len(levels) / SHARE, problems or USUAL_PROBLEMS, FEWEST_STEPS, levels)
    chosen = levels[:1] if sweep is None else sweep.group_size
    length = int(longest)
    why = f"only n = {n} was run"
    return tuple(ProposedRun(level, problems, length, why, costs=length) for level in chosen)


def _second_runs(runs: Sequence[RunAudit], comparisons: Sequence[SizeComparison]) -> list[ProposedRun]:
    """If the best n is undecided: one more run of it and of its rivals, the least certain first."""
    open_ones = [one for one in comparisons[:1] if one.verdict == "undecided"]
    found: list[ProposedRun] = []
    for one in open_ones:
        top = min(one.sizes, key=lambda size: size.behind.mean)
        rivals = [size for size in one.sizes if size.group_size != top.group_size and size.behind.low <= 0]
        rivals.sort(key=lambda size: -size.behind.high)
        for size in [top, *rivals][:3]:
            other = rivals[0] if size is top else top
            why = (
                f"a second run (another seed) at {count(one.rollouts)} rollouts, to tell it from n = {other.group_size}"
            )
            length = int(one.rollouts)
            found.append(ProposedRun(size.group_size, size.problems_per_batch, length, why, costs=length))
    return found


def _edge(known: Field, runs: Sequence[RunAudit], comparisons: Sequence[SizeComparison]) -> list[ProposedRun]:
    """If the best n is the largest or smallest that was run: one beyond it."""
    if not comparisons or comparisons[0].verdict in ("hardly-matters", "one-size"):
        return []
    one = comparisons[0]
    best = min(one.sizes, key=lambda size: size.behind.mean)
    sizes = known.fits.group_sizes
    step = {sizes[-1]: best.group_size * 2, sizes[0]: best.group_size // 2}.get(best.group_size)
    if step is None or step < 2 or step * (best.problems_per_batch or 1) * FEWEST_STEPS > one.rollouts:
        return []
    side = "largest" if best.group_size == sizes[-1] else "smallest"
    why = f"n = {best.group_size} looks best and is the {side} n that was run: the best n may lie beyond it"
    return [ProposedRun(step, best.problems_per_batch, int(one.rollouts), why, costs=int(one.rollouts))]


def _longer(known: Field, runs: Sequence[RunAudit]) -> list[ProposedRun]:
    """If the longest run was compared with a configuration that was not run as far: continue that one."""
    forecast = [run for run in runs if run.forecast and run.standing in ("behind", "undecided")]
    if not forecast:
        return []
    run = max(forecast, key=lambda one: one.rollouts)
    key = (run.best_group_size, run.best_problems_per_batch)
    candidates = [one for one in runs if (one.group_size, one.problems_per_batch) == key and one.fault is None]
    if not candidates:
        return []
    longest = max(candidates, key=lambda one: one.rollouts)
    why = f"{run.run_id} was compared with a forecast of n = {key[0]}, which was run to {count(longest.rollouts)} only"
    length = int(run.rollouts)
    return [
        ProposedRun(
            longest.group_size,
            longest.problems_per_batch,
            length,
            why,
            continues=longest.run_id,
            costs=length - int(longest.rollouts),
        )
    ]


def _usual_problems(runs: Sequence[RunAudit]) -> int | None:
    known = [run.problems_per_batch for run in runs if run.problems_per_batch is not None]
    return max(set(known), key=lambda bp: (known.count(bp), -bp)) if known else None
