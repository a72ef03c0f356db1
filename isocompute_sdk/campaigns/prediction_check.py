"""`compare`: what a planned run reached, beside what was predicted of it before it ran."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isocompute_sdk import files
from isocompute_sdk.errors import RecordError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.records import RunSet

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Comparison:
    """What the planned run reached, beside what was predicted of it before it ran."""

    run_id: str
    metric: str
    rollouts: float
    """Compute at which both hold: the last evaluation of the run."""
    measured: float
    """The metric at that evaluation."""
    predicted: float
    """Prediction for one new run there, from the runs before it."""
    low: float
    high: float
    """80 % interval of one new measured run (`predict(kind="run")`)."""
    largest_compute: float
    """Largest compute behind the prediction."""

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float:
        """Measured minus predicted."""
        return self.measured - self.predicted

    def summary(self) -> str:
        """Prediction and measurement in one sentence."""
        if self.inside:
            verdict = f"inside the interval ({self.error:+.3f})"
        else:
            side = "above" if self.error > 0 else "below"
            verdict = (
                f"{side} the interval ({self.error:+.3f}); 80 % intervals miss one in five, more far beyond the data"
            )
        return (
            f"predicted {self.metric} {self.predicted:.3f} (80 % interval of one run {self.low:.3f} to "
            f"{self.high:.3f}), measured {self.measured:.3f}: {verdict}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        derived = {"inside": self.inside, "error": self.error}
        return {"kind": "comparison", "schema_version": SCHEMA_VERSION, **asdict(self), **derived}

    def save(self, path: str | Path) -> Path:
        """Write as JSON; a kill leaves the old file or the new one."""
        return files.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read what `save` wrote.

        Raises:
            IsoComputeError: missing file, other content, another schema version.
        """
        saved = files.read_json(path, kind="comparison", schema_version=SCHEMA_VERSION)
        return cls(**{name: saved[name] for name in cls.__dataclass_fields__})


def compare(fits: Fits, runs: RunSet) -> Comparison:
    """One run's last evaluation beside the prediction of fits that do not know the run.

    Args:
        fits: fits of other runs.
        runs: one run with the metric of the fits.

    Raises:
        RecordError: no such metric, or several runs.
    """
    series = runs.series(fits.metric, fits.eval_set)
    if len(series) != 1:
        raise RecordError(f"received {len(series)} runs; accepted: one run to compare", "Choose one with filter().")
    one = series[0]
    at = float(one.rollouts_T[-1])
    predicted = fits.predict(at, one.group_size, one.problems_per_batch, kind="run")
    return Comparison(
        run_id=one.run_id,
        metric=fits.metric,
        rollouts=at,
        measured=float(one.value_T[-1]),
        predicted=float(predicted.mean),
        low=float(predicted.low),
        high=float(predicted.high),
        largest_compute=max(curve.last_compute for curve in fits.curves.values()),
    )
