"""`isocompute list`: what ships with the package, by kind."""

from __future__ import annotations

from typing import Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say

KINDS = ("sweeps",)


def list_(
    kind: Annotated[str, typer.Argument(help=f"What to list: {', '.join(KINDS)}.")],
    sweeps: opt.Sweeps = None,
    json: opt.Json = False,
) -> None:
    """List what ships with the package: the real sweeps on which choices of n are judged.

    A folder of the same form joins them: NAME.csv with one row per evaluation (run_id, group_size, problems_per_batch,
    seed, rollouts and a column per metric) beside NAME.yaml with title, source, licence, model, data, algorithm,
    differs, read, family, group and metrics.

    Examples:
        isocompute list sweeps

        isocompute list sweeps --sweeps my_sweeps
    """
    from isocompute_sdk.errors import SpecError
    from isocompute_sdk.laws.sweeps import sweeps as corpus

    if kind not in KINDS:
        raise SpecError(f"nothing is listed as {kind!r}; accepted: {', '.join(KINDS)}", "isocompute list sweeps")
    every = corpus() if sweeps is None else (*corpus(), *corpus(sweeps))
    if json:
        rows = {one.name: {"runs": len(one.runs.run_ids), **one.provenance.model_dump(mode="json")} for one in every}
        emit_json({"kind": "sweeps", "sweeps": rows})
        return
    for one in every:
        about, runs = one.provenance, one.runs.runs()
        sizes = ", ".join(str(n) for n in sorted({run.group_size for run in runs}))
        say(f"{one.name}: {about.title}")
        say(f"  n = {sizes}; {len(runs)} runs; {', '.join(about.metrics)}; family {about.family}")
        say(f"  {about.source} ({about.licence})")
