"""Numbers, lists and URLs in messages, and the words of a command."""

from __future__ import annotations

import re
from collections.abc import Sequence

LOGIN = r"://[^/\s]*@"
"""Of a URL, the login that stands before its host."""
GPUS = r"(?P<gpus>[0-9]+)\s*(x\s*)?(?!nodes?\b)[a-zA-Z][a-zA-Z0-9 _-]*"
"""GPUs as people write them, `8xH100` or `8 GPUs`: their number, and a name that is not read. Nodes are not GPUs."""


def day_first(text: str) -> str:
    """A time as ISO 8601: with dots the day comes first everywhere, as in `13.07.2026 09:33:48`."""
    return re.sub(r"^(\d\d)\.(\d\d)\.(\d{4})", r"\3-\2-\1", text.strip())


def without_login(text: str) -> str:
    """Text whose URLs say no user and no password."""
    return re.sub(LOGIN, "://", text)


def short(value: float) -> str:
    """1.5M for 1.5e6; three digits."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        # 999,600 is 1M, not 1000k.
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def two_digits(value: float) -> float:
    """A multiple as `multiple` shows it: one number decides and is shown."""
    return float(f"{value:.2g}")


def multiple(value: float) -> str:
    """How many times something else: `2.8`, `1,300`."""
    shown = two_digits(value)
    return f"{shown:.2g}" if shown < 100 else f"{shown:,.0f}"


def small(value: float) -> str:
    """A gain or loss of reward with three decimals, as rewards are shown; one that would be 0 is less than 0.001."""
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.0005 else "< 0.001"


def chance_text(share: float) -> str:
    """A probability without false certainty: `97 %`, `above 99 %`."""
    return "above 99 %" if share > 0.99 else "below 1 %" if share < 0.01 else f"{share * 100:.0f} %"


def off(error: float, digits: int = 3) -> str:
    """Predicted less measured reward in words: `0.016 too low`."""
    return f"{abs(error):.{digits}f} too {'high' if error > 0 else 'low'}"


def counted(count: int, noun: str) -> str:
    """`1 run`, `1,200 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds in a unit that people read."""
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def or_unknown(value: object) -> str:
    """The value, or `?`."""
    return "?" if value is None else str(value)


def joined(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed(parts: Sequence[str], most: int, mark: str = ",") -> str:
    """The first parts of a list, and how many more there are."""
    shown, more = f"{mark} ".join(parts[:most]), len(parts) - most
    return f"{shown}{mark} and {more:,} more" if more > 0 else shown


def printable(text: str, keep: str = "") -> str:
    """Text for people: control characters of run names, line ends included, are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


VALUES = {"--json": 0, "--verbose": 0, "-v": 0, "--prior": 0, "--bounds": 2}
"""Numbers of values of options that have not one."""
NOT_NEXT = ("--method", "--points", "--bin-width", "--curve", "--update-steps", "--rollouts-per-batch")
"""Options with which `isocompute next` has no answer."""


def parted(words: Sequence[str], flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words that were typed, without some options and their values; and these."""
    kept, gone, values = list[str](), list[str](), 0
    for word in words:
        flag, equals, _ = word.partition("=")
        if values:
            values -= 1
            gone.append(word)
        elif flag in flags:
            values = 0 if equals else VALUES.get(flag, 1)
            gone.append(word)
        # Also without -oplan.json: a command that is pasted must not write over that file.
        elif not ("-o" in flags and word.startswith("-o")):
            kept.append(word)
    return kept, gone
