"""Coded notes: what an estimate rests on, said once and carried along with the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["info", "warning", "refuse"]


@dataclass(frozen=True)
class Note:
    """One caveat with a stable code, so that programs can act on it and people can look it up."""

    code: str
    """Stable identifier in kebab case, e.g. `extrapolation-beyond-3x`."""
    severity: Severity
    """`info`: worth knowing; `warning`: may cost money; `refuse`: the result must not be used as it is."""
    message: str
    """What was seen, with numbers, and what to try."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The numbers behind the message, JSON-serialisable."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "data": dict(self.data),
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Note:
        """Inverse of `to_dict`."""
        return cls(raw["code"], raw["severity"], raw["message"], dict(raw.get("data", {})))


def unique(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Drop repeats of the same code and message, keeping first occurrences in order."""
    seen: dict[tuple[str, str], Note] = {}
    for note in notes:
        seen.setdefault((note.code, note.message), note)
    return tuple(seen.values())


def by_severity(notes: Iterable[Note]) -> list[Note]:
    """The gravest first, otherwise in their order."""
    order = {"refuse": 0, "warning": 1, "info": 2}
    return sorted(notes, key=lambda note: order[note.severity])
