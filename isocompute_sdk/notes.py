"""Coded notes: caveats that stay with a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["info", "warning", "refuse"]


@dataclass(frozen=True)
class Note:
    """One caveat with a stable code that programs can act on and people can look up (docs/notes.md)."""

    code: str
    """Stable identifier in kebab case, e.g. `extrapolation-beyond-3x`."""
    severity: Severity
    """`info`: worth knowing; `warning`: may cost money; `refuse`: do not use the result as it is."""
    message: str
    """What happened, with numbers, and what to do."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The numbers in the message, as JSON values."""

    @property
    def line(self) -> str:
        """Severity, code and message."""
        return f"[{self.severity}] {self.code}: {self.message}"

    def without_run(self) -> str:
        """The message without the name of the run that it is about."""
        return self.message.removeprefix(f"run {self.data.get('run_id')!r}: ")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form; `Note(**mapping)` reads it back."""
        return {**vars(self), "data": dict(self.data)}


def unique(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Notes without repeats of the same code and message, in order."""
    seen: dict[tuple[str, str], Note] = {}
    for note in notes:
        seen.setdefault((note.code, note.message), note)
    return tuple(seen.values())


def by_severity(notes: Iterable[Note]) -> list[Note]:
    """Notes by severity, most severe first, otherwise in their order."""
    order = {"refuse": 0, "warning": 1, "info": 2}
    return sorted(notes, key=lambda note: order[note.severity])
