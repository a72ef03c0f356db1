"""The built-in runner on the shared workload: `our_loop.py RUN_FOLDER WARM_UP`, started by loop_against_trl.py.

Makes the update steps of a prepared run, journal and progress included, and prints the seconds after the warm-up.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.run_folders.run_journal import Journal
from isocompute_torch import assembly
from isocompute_torch.configuration import Counters, load_configuration
from isocompute_torch.loop import Loop, RunConsole


def main() -> None:
    """Train and print the seconds."""
    configuration, warm_up = load_configuration(Path(sys.argv[1])), int(sys.argv[2])
    run = configuration.run
    with ExitStack() as stack:
        parts = assembly.assemble(configuration, assembly.load_problems(configuration), stack)
        journal = Journal(configuration.metrics_path, run.run_id, 1)
        journal.begin(resumed_step=None)
        console = RunConsole(run.run_id, run.update_steps, 0)
        loop = Loop(configuration, parts, Counters(), journal, console)
        wall = processor = 0.0
        for step in range(1, run.update_steps + 1):
            if step == warm_up + 1:
                wall, processor = time.perf_counter(), time.process_time()
            loop.update(step)
        measured = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - processor}
        journal.close()
    measured["length"] = journal_records.read(journal.path)[-1]["metrics"]["response_length"]
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
