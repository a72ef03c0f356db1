"""Peak resident memory of a training process above that after its model is loaded, n = 512 against n = 64 at B_p = 32.

Each case is a process of its own, the same as a run's: it assembles the parts of a run, reads its peak, makes update
steps and reads it again (VmHWM). The token budget of a micro-batch and the sampler's rows bound the difference.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from workload import make_task, prepare_run, start

STEPS = 3


def main() -> None:
    """Measure every n and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the task is kept for the next time")
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--groups", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--case", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        sys.stdout.write(json.dumps(measure(options.case)) + "\n")
        return
    lines = [
        "| merging | n | after loading, MiB | peak above it, MiB | ratio to the first n |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        task = make_task(folder)
        for merge in (False, True):
            first = None
            for group in options.groups:
                run = prepare_run(
                    task,
                    folder / "run",
                    steps=STEPS,
                    group_size=group,
                    problems=options.problems,
                    options={"merge_duplicates": merge},
                )
                loaded, above = json.loads(start([__file__, "--case", str(run)], task).splitlines()[-1])
                first = first or above
                state = "on" if merge else "off"
                lines.append(f"| {state} | {group} | {loaded:.0f} | {above:.1f} | {above / first:.2f} |")
    sys.stdout.write("\n".join(lines) + "\n")


def measure(folder: Path) -> tuple[float, float]:
    """MiB resident after loading, and MiB by which the peak rises in the update steps."""
    from isocompute_sdk.run_folders.run_journal import Journal
    from isocompute_torch import assembly
    from isocompute_torch.checkpoint import Counters
    from isocompute_torch.configuration import load_configuration
    from isocompute_torch.loop import Loop
    from isocompute_torch.progress_display import RunConsole

    configuration = load_configuration(folder)
    with ExitStack() as stack:
        parts = assembly.assemble(configuration, assembly.load_problems(configuration), stack)
        journal = Journal(configuration.metrics_path, configuration.run.run_id, 1)
        journal.begin(resumed_step=None)
        console = RunConsole(configuration.run.run_id, STEPS, 0)
        loop = Loop(configuration, parts, Counters(), journal, console)
        _forget_peak()
        loaded = _peak_mib()
        for step in range(1, STEPS + 1):
            loop.update(step)
        journal.close()
        return loaded, _peak_mib() - loaded


def _forget_peak() -> None:
    """Let the peak start from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
