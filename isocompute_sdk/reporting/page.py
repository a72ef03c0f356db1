"""What a report says, without HTML: sections of typed blocks that the template draws one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from isocompute_sdk.notes import Note

Tone = Literal["good", "caution", "stop", "neutral"]
"""How an answer is coloured: spend, spend with care, do not spend yet, no answer."""


@dataclass(frozen=True)
class Paragraph:
    """Text; `quiet` for explanations of a chart or table."""

    kind: ClassVar = "paragraph"
    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Fact:
    """One number with its label."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Facts:
    """Numbers side by side."""

    kind: ClassVar = "facts"
    items: tuple[Fact, ...]


@dataclass(frozen=True)
class Table:
    """Rows of text, as many cells as the header has."""

    kind: ClassVar = "table"
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    marked: int | None = None
    """Row to stress, such as the plan's."""
    text_columns: tuple[int, ...] = (0,)
    """Columns that are not numbers."""


@dataclass(frozen=True)
class Notes:
    """Coded notes, most severe first."""

    kind: ClassVar = "notes"
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Picture:
    """A figure of `isocompute_sdk.plots`."""

    kind: ClassVar = "picture"
    name: str
    """Unique on the page."""
    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Grid:
    """Small pictures beside each other."""

    kind: ClassVar = "grid"
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Command:
    """Something to paste into a shell."""

    kind: ClassVar = "command"
    text: str
    label: str = ""


@dataclass(frozen=True)
class Script:
    """The text of a launch script."""

    kind: ClassVar = "script"
    text: str
    label: str


@dataclass(frozen=True)
class Position:
    """One budget of a slider: the plan for it."""

    budget: str
    values: tuple[str, ...]
    """The plan's numbers, in the order of the slider's labels."""


@dataclass(frozen=True)
class Slider:
    """Precomputed plans by budget; the script only picks one."""

    kind: ClassVar = "slider"
    labels: tuple[str, ...]
    positions: tuple[Position, ...]
    start: int


@dataclass(frozen=True)
class Missing:
    """What a section lacks, and the command that would give it."""

    kind: ClassVar = "missing"
    text: str
    command: str = ""


Block = Paragraph | Facts | Table | Notes | Picture | Grid | Command | Script | Slider | Missing


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    name: str
    """Anchor, unique on the page."""
    title: str
    blocks: tuple[Block, ...]

    @property
    def missing(self) -> bool:
        """Whether there is nothing to show."""
        return all(isinstance(block, Missing) for block in self.blocks)


@dataclass(frozen=True)
class Answer:
    """The first screen."""

    tone: Tone
    label: str
    """How sure the answer is, in two or three words."""
    sentence: str
    """What to run, what it costs, what to expect."""
    sure: str
    """How sure that is, in one sentence; "" if there is no plan."""
    decision: str
    """What is asked of whoever decides."""
    facts: tuple[Fact, ...]
    more: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Page:
    """Everything on the page."""

    title: str
    subtitle: str
    answer: Answer
    sections: tuple[Section, ...]
    made: str
    """Version and time, for the foot of the page."""
    refresh_seconds: int | None = None
    """The browser loads the page anew after this time; None: never."""

    def pictures(self) -> tuple[Picture, ...]:
        """Every picture on the page, in order."""
        found: list[Picture] = []
        for block in (*self.answer.more, *(block for section in self.sections for block in section.blocks)):
            if isinstance(block, Picture):
                found.append(block)
            elif isinstance(block, Grid):
                found += block.pictures
        return tuple(found)

    def slider(self) -> Slider | None:
        """The slider over budgets; None without plans."""
        blocks = [block for section in self.sections for block in section.blocks]
        return next((block for block in blocks if isinstance(block, Slider)), None)
