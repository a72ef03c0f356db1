"""Which few runs would settle what an audit left open."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.auditing.result import ProposedRun, RunAudit, SizeComparison
from isocompute_sdk.auditing.standing import Field
from isocompute_sdk.auditing.words import count
from isocompute_sdk.planning.pilot import SHARE, pilot_sweep

MOST = 4
USUAL_PROBLEMS = 32
"""B_p where the runs do not state theirs: the smallest of the paper's sweeps."""
FEWEST_STEPS = 20
"""Update steps below which a run has hardly left its warm-up."""
AROUND = (1 / 4, 4, 16)
"""Levels proposed beside a single n, as factors: two octaves apart, as in a usual pilot."""


def proposals(known: Field, runs: Sequence[RunAudit], comparisons: Sequence[SizeComparison]) -> tuple[ProposedRun, ...]:
    """At most `MOST` runs, the most telling first."""
    sizes = known.fits.group_sizes
    if len(sizes) == 1:
        return _other_levels(runs, sizes[0])[:MOST]
    found = [*_second_runs(runs, comparisons), *_edge(known, runs, comparisons), *_longer(known, runs)]
    return tuple(found[:MOST])


def _other_levels(runs: Sequence[RunAudit], n: int) -> tuple[ProposedRun, ...]:
    """With one n: levels around it, as long as the runs at hand."""
    longest = max(run.rollouts for run in runs)
    problems = _usual_problems(runs)
    levels = tuple(int(n * factor) for factor in AROUND if n * factor >= 2)
    # A pilot may cost a share of a budget; here its runs are to be as long as those that were made.
    sweep = pilot_sweep(longest * len(levels) / SHARE, problems or USUAL_PROBLEMS, FEWEST_STEPS, levels)
    chosen = levels[:1] if sweep is None else sweep.group_size
    length = int(longest)
    why = f"only n = {n} was run"
    return tuple(ProposedRun(level, problems, length, why, costs=length) for level in chosen)


def _second_runs(runs: Sequence[RunAudit], comparisons: Sequence[SizeComparison]) -> list[ProposedRun]:
    """Where the best n cannot be told from others: one more run of each, the least sure first."""
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
    """Where the best n is the last that was run: one beyond it."""
    if not comparisons or comparisons[0].verdict in ("hardly-matters", "one-size"):
        return []
    one = comparisons[0]
    best = min(one.sizes, key=lambda size: size.behind.mean)
    sizes = known.fits.group_sizes
    step = {sizes[-1]: best.group_size * 2, sizes[0]: best.group_size // 2}.get(best.group_size)
    if step is None or step < 2 or step * (best.problems_per_batch or 1) * FEWEST_STEPS > one.rollouts:
        return []
    side = "largest" if best.group_size == sizes[-1] else "smallest"
    why = f"n = {best.group_size} looks best and is the {side} that was run: the best n may lie beyond it"
    return [ProposedRun(step, best.problems_per_batch, int(one.rollouts), why, costs=int(one.rollouts))]


def _longer(known: Field, runs: Sequence[RunAudit]) -> list[ProposedRun]:
    """Where the longest run was held against a configuration that was not run as far: continue that one."""
    forecast = [run for run in runs if run.forecast and run.standing in ("behind", "undecided")]
    if not forecast:
        return []
    run = max(forecast, key=lambda one: one.rollouts)
    key = (run.best_group_size, run.best_problems_per_batch)
    candidates = [one for one in runs if (one.group_size, one.problems_per_batch) == key and one.fault is None]
    if not candidates:
        return []
    longest = max(candidates, key=lambda one: one.rollouts)
    why = f"{run.run_id} was held against a forecast of n = {key[0]}, which was run to {count(longest.rollouts)} only"
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
