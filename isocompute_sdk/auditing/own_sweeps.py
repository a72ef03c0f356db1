"""Runs of one's own as sweeps that a backtest takes."""

from __future__ import annotations

from isocompute_sdk.errors import RecordError
from isocompute_sdk.fitting.arguments import metric_range
from isocompute_sdk.fitting.measured_runs import check_bounds, grouped
from isocompute_sdk.laws.sweeps import Provenance, RecordedSweep
from isocompute_sdk.phrases import counted, listed
from isocompute_sdk.records import CONTEXT_FIELDS, RunSet
from isocompute_sdk.records.grouping import choose_measure
from isocompute_sdk.records.reward_metrics import no_rise, no_rise_words


def own_sweeps(
    runs: RunSet, metric: str | None = None, eval_set: str | None = None, bounds: tuple[float, float] = (0.0, 1.0)
) -> tuple[RecordedSweep, ...]:
    """Runs as sweeps: those that may be compared, with at least two n.

    Args:
        runs: runs of any number of models and studies.
        metric: metric that n is chosen for; None: avg@4, else the one that most runs have.
        eval_set: evaluation set; None: `validation`, else the one that most runs have.
        bounds: range of the metric; a value outside is an error.
    """
    import polars as pl

    measure = choose_measure(runs, metric, eval_set, metric_range(bounds))
    series = {one.run_id: one for one in runs.series(measure.metric, measure.eval_set)}
    check_bounds(series.values(), measure.metric, measure.bounds)
    groups = grouped([run for run in runs.runs() if run.run_id in series], series, measure.bounds)
    elsewhere = (pl.col("metric") == measure.metric) & (pl.col("eval_set") != measure.eval_set)
    found, flat, advice = list[RecordedSweep](), list[str](), ""
    for i, group in enumerate(groups, start=1):
        name, names = f"group {i}", [run.run_id for run in group.runs]
        if no_rise([series[run].value_T for run in names]):
            # The best checkpoint of runs without a rise is their luckiest.
            seen, advice = no_rise_words(measure.metric, len(names))
            flat.append(f"{listed(names, 3)}: {seen}")
        elif len({run.group_size for run in group.runs}) > 1:
            last: dict[int, float] = {}
            for run in group.runs:
                last[run.group_size] = max(last.get(run.group_size, 0.0), float(series[run.run_id].rollouts_T[-1]))
            told = {key: str(group.context.get(key) or "not recorded") for key in CONTEXT_FIELDS}
            about = Provenance(
                title=name,
                source="runs given",
                licence="not shipped",
                model=told["model"],
                data=told["train_data"],
                algorithm=told["algorithm"],
                differs=", ".join(group.pooled) or "nothing known",
                read="as logged",
                family=name,
                group=name,
                metrics=(measure.metric,),
                bounds=measure.bounds,
                # Every n was measured up to here: runs of equal steps end at rollouts in proportion to n.
                targets=(min(last.values()),),
            )
            found.append(RecordedSweep(name, runs.filter(~elsewhere & pl.col("run_id").is_in(names)), about))
    if len(flat) == len(groups):
        raise RecordError("; ".join(flat), advice)
    if not found:
        sizes = sorted({one.group_size for one in series.values()})
        had = f"{counted(len(series), 'run')} with {measure.metric}, n = {sizes}"
        needed = "accepted: runs of at least two n that agree in model, data and recipe"
        raise RecordError(
            "; ".join([f"no two group sizes can be compared: {had}", *flat, needed]),
            "<isocompute audit RUNS | iso.audit(runs)> says which runs may be compared, and why.",
        )
    return tuple(found)
