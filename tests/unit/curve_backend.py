"""A backend whose training is a curve: tests copy this module beside a dist-info of its own."""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isocompute_sdk.notes import Note
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.specs import RunSpec
    from isocompute_sdk.training.backend import BackendInfo, Launch


class CurveBackend:
    """Meets the Backend protocol.

    `options` may hold seconds (a pause per step), fail_at (a step), flat (no reward and no gradient for this n, or
    "all"), hang (for this n nothing comes after the first evaluation) and gate (a file without which nothing comes).
    A run needs the standard library only, which starts ten times as fast, so methods import the package.
    """

    name = "curve"

    def describe(self) -> BackendInfo:
        from isocompute_sdk.training.backend import BackendInfo

        return BackendInfo("curve", "python", "3", "A curve with noise.", (), ("grpo",), ())

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        return ()

    def script(self, run: RunSpec) -> str:
        words = [sys.executable, "-I", "-S", __file__, json.dumps(run.model_dump(mode="json"))]
        return f'#!/usr/bin/env bash\nexec {shlex.join(words)} "$(dirname "$0")"\n'

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        from isocompute_sdk.files import write_text
        from isocompute_sdk.training.backend import Launch

        path = write_text(Path(folder) / "launch.sh", self.script(run), executable=True)
        return Launch(Path(folder), (path,), ("bash", str(path)))

    def read_records(self, folder: str | Path) -> RunSet:
        from isocompute_sdk.run_folders.store import read_journals

        return read_journals(folder)


class LongerCurveBackend(CurveBackend):
    """Goes on where a shorter run has ended."""

    extends = True


def end_with(process: int) -> None:
    """End this program once the tests have ended: runs outlive the commands that start them."""

    def watch() -> None:
        with suppress(ProcessLookupError):
            while True:
                os.kill(process, 0)
                time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def train(run: dict[str, object], folder: Path) -> None:
    """Append what is missing: one evaluation every tenth of the run, on a curve that depends on n."""
    path = folder / "metrics.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    n, bp, steps, seed = (int(str(run[key])) for key in ("group_size", "problems_per_batch", "update_steps", "seed"))
    options = run["options"]
    assert isinstance(options, dict)
    common = {"schema_version": 1, "run_id": run["run_id"], "attempt": 1, "tokens": 0, "wall_seconds": 0.0}
    with path.open("a") as file:

        def write(kind: str, step: int, **fields: object) -> None:
            record = {**common, "kind": kind, "step": step, "rollouts": step * n * bp, **fields}
            file.write(json.dumps(record) + "\n")
            file.flush()

        write("run", 0, group_size=n, problems_per_batch=bp, seed=seed, model=run["model"], learning_rate=1e-4 * n)
        last = max((record["step"] for record in done if record["kind"] == "evaluation"), default=-1)
        for step in sorted({round(steps * i / 10) for i in range(11)}):
            if step <= last:
                continue
            if options.get("fail_at") == step:
                print("the curve broke", file=sys.stderr)
                write("end", step, status="failed", message="the curve broke")
                sys.exit(1)
            while last >= 0 and "gate" in options and not Path(str(options["gate"])).exists():
                time.sleep(0.02)
            time.sleep(3600.0 if options.get("hang") == n and last >= 0 else float(options.get("seconds", 0.0)))
            noise = random.Random(f"{seed} {n} {bp} {step}").gauss(0.0, 0.004)
            gain = (0.3 + 0.03 * math.log2(n)) * -math.expm1(-step * n * bp / (500.0 * n))
            flat = options.get("flat") in (n, "all")
            metrics = {"avg@4": 0.0 if flat else min(0.4 + gain + noise, 1.0)}
            if flat and step:
                write("step", step, metrics={"train_reward": 0.0, "zero_variance_share": 1.0})
            write("evaluation", step, eval_set="validation", metrics=metrics)
            write("evaluation", step, eval_set="train_probe", metrics=metrics)
            last = step
        write("end", steps, status="finished", message="")


if __name__ == "__main__":
    end_with(int(os.environ["TESTS_PROCESS"]))
    train(json.loads(sys.argv[1]), Path(sys.argv[2]))
