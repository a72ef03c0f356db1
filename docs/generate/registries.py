"""Backends and log formats, as they are registered, and the metrics that logs are read as."""

from __future__ import annotations

from collections.abc import Iterator

from generate.markdown import code, prose, table
from isocompute_sdk.ingest.formats import registry as formats
from isocompute_sdk.ingest.formats.log_format import METRICS, LogFormat
from isocompute_sdk.training import registry as backends
from isocompute_sdk.training.backend import BackendInfo

STEPS = {
    "rollout_batches": "rollout batches, that is updates M",
    "optimizer_updates": "optimiser updates, several of which may share a batch",
    "rollouts": "rollouts",
}
"""What a logged step counts, in words."""


def pages() -> Iterator[tuple[str, str]]:
    """A page on backends and a page on log formats."""
    parts = [backends.load(name).describe() for name in backends.available()]
    yield "backend_options.md", "# Backends and their options\n\n" + "\n\n".join(map(_backend, parts)) + "\n"
    known = [formats.load(name) for name in formats.available()]
    yield "log_formats.md", "\n\n".join(["# Log formats", _metrics(), *map(_format, known)]) + "\n"


def _backend(info: BackendInfo) -> str:
    parts = [
        f"## {info.name}",
        f"{prose(info.summary)} Written for {prose(info.framework)} {info.version}; algorithms: "
        f"{', '.join(map(code, info.algorithms))}.",
        "".join(f"- {prose(need)}\n" for need in info.needs),
    ]
    if info.install:
        parts += ["```bash\n" + "\n".join(info.install) + "\n```"]
    if info.options:
        rows = [
            (code(one.name), prose(one.type), "" if one.default is None else code(one.default), prose(one.description))
            for one in info.options
        ]
        parts += [table(("option", "accepts", "default", "meaning"), rows, style="stacked defaults")]
    if info.passes:
        flags = ", ".join(map(code, info.passes))
        parts += [
            f"Flags of the framework that `options` hands through, by their own names (`*`: any ending): {flags}."
        ]
    return "\n\n".join(parts)


def _metrics() -> str:
    rows = [(code(name), prose(meaning)) for name, meaning in METRICS.items()]
    return (
        "What each framework's tags are read as. A tag without a row is not read. Beside avg@k, best@k and worst@k "
        "these are the metrics:\n\n" + table(("metric", "meaning and unit"), rows)
    )


def _format(one: LogFormat) -> str:
    places = ["event files, W&B and MLflow runs, tables"]
    places += [f"its own files (`format={one.store.name}`)"] if one.store is not None else []
    places += ["consoles"] if one.console is not None else []
    rows = [(code(tag.metric), code(tag.pattern), tag.eval_set, _factor(tag.factor)) for tag in one.tags]
    parts = [
        f"## {one.name}",
        f"{prose(one.framework)}. Read from {', '.join(places)}. A log is of this format if a tag matches "
        f"{code(one.signature)}. A step counts {STEPS[one.step]}.",
    ]
    return "\n\n".join([*parts, *([table(("metric", "tag", "evaluation set", "times"), rows)] if rows else [])])


def _factor(factor: float) -> str:
    return "" if factor == 1 else f"{factor:g}"
