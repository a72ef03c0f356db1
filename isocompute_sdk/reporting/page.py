"""What a report says, without HTML: sections of typed blocks that the template draws one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from isocompute_sdk.notes import Note

Tone = Literal["good", "caution", "stop", "neutral"]
"""How an answer is coloured: approve, approve with a check, do not approve, no answer."""


@dataclass(frozen=True)
class Paragraph:
    """Text, with a command to paste if there is one; `quiet` for explanations of a chart or table."""

    kind: ClassVar = "paragraph"
    text: str
    quiet: bool = False
    command: str = ""


@dataclass(frozen=True)
class Items:
    """Sentences as a list."""

    kind: ClassVar = "items"
    title: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Fact:
    """One number with its label."""

    label: str
    value: str
    detail: str = ""


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
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Grid:
    """Pictures beside each other."""

    kind: ClassVar = "grid"
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Script:
    """The text of a launch script."""

    kind: ClassVar = "script"
    text: str
    label: str


@dataclass(frozen=True)
class Slider:
    """Precomputed plans by budget; the script of the page only picks one."""

    kind: ClassVar = "slider"
    labels: tuple[str, ...]
    positions: tuple[tuple[str, tuple[str, ...]], ...]
    """Each budget, and the numbers of its plan in the order of the labels."""
    start: int


@dataclass(frozen=True)
class Missing:
    """What a section lacks, and the command that would give it."""

    kind: ClassVar = "missing"
    text: str
    command: str = ""


Block = Paragraph | Items | Table | Notes | Picture | Grid | Script | Slider | Missing


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
    """What is asked of whoever decides, in a few words."""
    sentence: str
    """What to run."""
    decision: str
    """The same with its reason."""
    facts: tuple[Fact, ...]
    """What it costs, gains and may lose."""
    command: str = ""
    """What to ask instead or next, to paste; empty without."""
    rule: tuple[tuple[str, str], ...] = ()
    """Each decision, and when it is taken; empty where nothing is to be approved."""
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

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every block, in order."""
        return (*self.answer.more, *(block for section in self.sections for block in section.blocks))

    def slider(self) -> Slider | None:
        """The slider over budgets; None without plans."""
        return next((block for block in self.blocks if isinstance(block, Slider)), None)
