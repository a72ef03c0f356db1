"""Speed probe: short runs at three batch sizes, from which seconds per step are measured."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import RunSpec, Study
from isocompute_sdk.specs.throughput import TRADE_OFF_SPAN
from isocompute_sdk.training.backend import BackendInfo

STEPS = 10
BATCHES = 3
SAVE_OPTION = "save_every_steps"
"""Backend option: its default would save a run of ten steps after every step."""


def probe_pairs(study: Study) -> tuple[tuple[int, int], ...]:
    """Three pairs (n, B_p) with batches at least 4x apart: the ends and the middle of the study's sweep.

    If the sweep's batches span less than 16x, or the study has no sweep: the sweep's middle n, or 8, at 1, 4 and 16
    times the recipe's smallest B_p.
    """
    sweep, floor = study.sweep, study.recipe.min_problems_per_batch
    if sweep is not None:
        pairs = sorted(sweep.pairs, key=lambda pair: pair[0] * pair[1])
        if pairs[-1][0] * pairs[-1][1] >= TRADE_OFF_SPAN**2 * pairs[0][0] * pairs[0][1]:
            middle = (pairs[0][0] * pairs[0][1] * pairs[-1][0] * pairs[-1][1]) ** 0.5
            between = min(pairs[1:-1], key=lambda pair: abs(pair[0] * pair[1] - middle), default=pairs[0])
            return (pairs[0], between, pairs[-1])
    sizes = (8,) if sweep is None else tuple(sorted(sweep.group_size))
    return tuple((sizes[len(sizes) // 2], floor * 4**i) for i in range(BATCHES))


def probe_runs(
    study: Study, backend: BackendInfo, pairs: Sequence[tuple[int, int]], steps: int = STEPS
) -> tuple[RunSpec, ...]:
    """One short run per pair, evaluated at both ends, so that evaluations are timed separately.

    Raises:
        SpecError: fewer than 3 steps, or a batch that the hardware cannot hold.
    """
    if steps < 3:
        raise SpecError(f"steps = {steps}; accepted: 3 or more, since the first is left out", "Measure more steps.")
    options = dict(study.options)
    if any(option.name == SAVE_OPTION for option in backend.options):
        options.setdefault(SAVE_OPTION, steps)
    folder = f"{study.output_dir.rstrip('/')}/{study.name}-probe"
    return tuple(
        RunSpec(
            run_id=(run_id := f"probe-n{n}-bp{bp}"),
            model=study.model,
            data=study.data,
            recipe=study.recipe,
            group_size=n,
            problems_per_batch=bp,
            update_steps=steps,
            evaluation=study.evaluation.replace(every_steps=steps, count=None),
            hardware=study.hardware,
            backend=backend.name,
            options=options,
            output_dir=f"{folder}/{run_id}",
        )
        for n, bp in pairs
    )
