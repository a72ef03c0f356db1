"""`isocompute launch --overrides` and `--against`: a plan for a command that somebody already has."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from isocompute_sdk.specs import RunSpec


def show(run: RunSpec, *, overrides: bool, against: Path | None, json: bool) -> None:
    """Print the flags of a run, or what a script would run beside it.

    Raises:
        BackendError: preflight refuses the run, its backend has no command line, or the script cannot be read.
    """
    from isocompute_sdk.training import existing, registry
    from isocompute_sdk.training.backend import raise_if_refused

    backend = registry.load(run.backend)
    raise_if_refused(backend.preflight(run), run.backend, run.run_id)
    settings = existing.settings_of(backend, run.backend, run)
    flags = existing.overrides(settings)
    compared = None if against is None else existing.against(backend, run.backend, run, against)
    if json:
        found: dict[str, Any] = {"kind": "launch-overrides", "backend": run.backend, "overrides": flags}
        found["settings"] = [asdict(one) for one in settings if one.of_plan]
        if compared is not None:
            found["against"] = [{**asdict(row), "same": row.same} for row in compared.rows]
            found["gaps"] = compared.gaps
        emit_json(found)
        return
    if compared is not None:
        say("\n".join(_table(compared.rows, str(against))))
        different = sum(not row.same for row in compared.rows)
        say(f"{different} of {len(compared.rows)} differ (marked !). not said: the framework's default holds.")
        for gap in compared.gaps:
            say(f"open: {printable(gap)}")
        if not overrides:
            say("next: append the flags of the plan, printed by the same command with --overrides")
    if overrides:
        say(f"  {flags}")


def _table(rows: list[Any], script: str) -> list[str]:
    lines = [("", "setting", printable(Path(script).name), "plan", "read from")]
    for row in rows:
        mark = " " if row.same else "!"
        # What stands in the script itself needs no path.
        where = printable(row.evidence.replace(f"{script}: ", "").removesuffix(script))
        lines.append((mark, row.name, _text(row.script), _text(row.plan), where))
    wide = [max(len(line[i]) for line in lines) for i in range(4)]
    padded = [[text.ljust(width) for text, width in zip(line[:4], wide, strict=True)] for line in lines]
    return ["  ".join([*cells, line[4]]).rstrip() for cells, line in zip(padded, lines, strict=True)]


def _text(value: object) -> str:
    if value is None:
        return "not said"
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(str(value))
