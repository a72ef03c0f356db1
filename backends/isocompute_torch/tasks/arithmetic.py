"""Families of generated arithmetic problems: short prompts of digits and one sign, answers of four digits.

Every family has its own sign, so that one model can learn several families and distinguish them:

- `mul31`: `abc*d=`, the product of a three-digit and a one-digit number;
- `rev31`: `abc~d=`, the same product written backwards. Its rewards contradict those of `mul31` at each position;
- `add32`: `abc+de=`, the sum of a three-digit and a two-digit number. Its prompts are one character longer.

All numbers are padded with zeros: the answer to `007*3=` is `0021`.

A task on disk: made once, then reused; a folder never holds half a task.

The folder holds model/ (weights and tokenizer, as `save_pretrained` writes them), train.jsonl and validation.jsonl (one
`{"id", "prompt", "answer"}` per line), reward.py, and task.json with settings, measurements, package versions and a
digest of every file. Only making a task imports torch.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import SpecError
from isocompute_torch.configuration import InputError

if TYPE_CHECKING:
    from isocompute_torch.tasks.build import Progress


ANSWER_DIGITS = 4
"""Length of every answer. The end token follows, so a response has five tokens."""
MAX_RESPONSE_TOKENS = ANSWER_DIGITS + 1
"""Smallest token limit at which a right response is not truncated."""
SIGNS = "*~+="
"""Characters of prompts other than digits."""
PROBLEMS = 10_000
"""Number of problems of each family."""


@dataclass(frozen=True)
class Problem:
    """One question with its only right answer."""

    id: str
    """Unique over all families."""
    prompt: str
    """Text that the model reads."""
    answer: str
    """Text that it must write before the end token."""


@dataclass(frozen=True)
class Family:
    """A rule that turns two numbers into four digits."""

    name: str
    """Name in settings and on the command line."""
    sign: str
    """Character between the two numbers."""
    answer: Callable[[int, int], str]
    """The four digits that are right for two numbers."""
    second_digits: int
    """Length of the second number; the first has three digits."""

    def problems(self) -> list[Problem]:
        """All problems of the family, always in the same order."""
        return [
            Problem(
                f"{self.name}-{first}-{second}",
                f"{first:03d}{self.sign}{second:0{self.second_digits}d}=",
                self.answer(first, second),
            )
            for first, second in self._operands()
        ]

    def _operands(self) -> list[tuple[int, int]]:
        """10,000 pairs: all of them, or a fixed draw from a larger number, so that all families have equal weight."""
        pairs = list(itertools.product(range(1000), range(10**self.second_digits)))
        return sorted(random.Random(self.name).sample(pairs, PROBLEMS)) if len(pairs) > PROBLEMS else pairs


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("mul31", "*", lambda first, second: f"{first * second:04d}", 1),
        Family("rev31", "~", lambda first, second: f"{first * second:04d}"[::-1], 1),
        Family("add32", "+", lambda first, second: f"{first + second:04d}", 2),
    )
}
"""Every family by name."""


def families(names: str) -> tuple[Family, ...]:
    """The families of a name, or of several names joined with `+`, such as `mul31+rev31`.

    Raises:
        SpecError: an unknown or repeated name.
    """
    chosen = names.split("+")
    unknown = [name for name in chosen if name not in FAMILIES]
    if unknown:
        raise SpecError(
            f"received family {unknown[0]!r}; accepted: {', '.join(FAMILIES)}",
            "Join several with +, as in mul31+rev31.",
        )
    if len(set(chosen)) < len(chosen):
        raise SpecError(
            f"received families {names!r} with a repeated name; accepted: each family once", "Remove the repeated name."
        )
    return tuple(FAMILIES[name] for name in chosen)


def problems(names: str) -> list[Problem]:
    """All problems of the named families, family after family."""
    return [problem for family in families(names) for problem in family.problems()]


Kind = Literal["easy", "hard", "mixed"]
KINDS: tuple[Kind, ...] = get_args(Kind)

MODEL_FOLDER, TRAIN_FILE, VALIDATION_FILE, REWARD_FILE = "model", "train.jsonl", "validation.jsonl", "reward.py"
"""Names in the folder of a task."""
HEAD_SIZE = 32
"""Size of an attention head, the smallest that vLLM's attention kernels support."""


@dataclass(frozen=True)
class ModelShape:
    """Size of the model. The default has 100,672 parameters."""

    hidden_size: int = 64
    """Width; a multiple of 32, the size of an attention head."""
    layers: int = 2
    """Transformer blocks."""
    feed_forward: int = 172
    """Width inside the gated feed-forward layers."""
    initial_std: float = 0.08
    """Standard deviation of the initial weights. With the usual 0.02 the warm-up takes twice the steps."""

    def __post_init__(self) -> None:
        if self.hidden_size < HEAD_SIZE or self.hidden_size % HEAD_SIZE:
            raise SpecError(
                f"hidden_size: received {self.hidden_size}; accepted: multiples of {HEAD_SIZE}", "Use a multiple of 32."
            )

    @property
    def heads(self) -> int:
        """Number of attention heads, each with its own keys and values."""
        return self.hidden_size // HEAD_SIZE


@dataclass(frozen=True)
class WarmUp:
    """Supervised steps that turn a random model into a base model that rewards can improve."""

    pass_rate: float = 0.35
    """Stop at this mean pass rate of single samples. With the default, the Easy set has 1,300 problems or more for
    seeds 0 to 4. With a fixed number of steps the sizes of the sets would differ several times between seeds."""
    max_steps: int = 1500
    """Fail after this number of steps."""
    check_every: int = 20
    """Steps between two measurements of the pass rate."""
    batch: int = 128
    """Problems per step."""
    learning_rate: float = 2e-3
    """Learning rate of AdamW after a linear rise over the first 20 steps."""


@dataclass(frozen=True)
class TaskSettings:
    """All settings of a prepared task."""

    family: str = "mul31"
    """One family, or several joined with `+`."""
    kind: Kind = "easy"
    """easy: avg@16 in 0.3 to 0.6; hard: at most 0.0625; mixed: half of each."""
    seed: int = 0
    """Seed of initial weights, order of the warm-up, labels and choice of problems."""
    validation: int = 200
    """Number of validation problems, which are in neither the warm-up nor the training set."""
    held_out_share: float = 0.3
    """Share of all problems outside the warm-up; validation problems are drawn from these."""
    label_samples: int = 16
    """Samples per problem that decide its difficulty."""
    temperature: float = 1.0
    """Sampling temperature of the labels."""
    shape: ModelShape = ModelShape()
    warm_up: WarmUp = WarmUp()
    device: str = "cpu"
    """Device of the warm-up, as torch names it. On a CPU the same settings give the same bits."""

    def __post_init__(self) -> None:
        families(self.family)
        if self.kind not in KINDS:
            raise SpecError(f"received set {self.kind!r}; accepted: {', '.join(KINDS)}", "Use one of these sets.")
        if isinstance(self.seed, bool) or self.seed < 0:
            raise SpecError(f"seed: received {self.seed!r}; accepted: whole numbers >= 0", "Use a whole number.")


MANIFEST = "task.json"


@dataclass(frozen=True)
class Manifest:
    """Content of task.json."""

    settings: TaskSettings
    measured: dict[str, Any]
    versions: dict[str, str]
    """Versions of the packages that made the task."""
    files: dict[str, str]
    """sha256 of every other file, by its path in the folder."""


DOCUMENT = Document(
    "arithmetic-task", 1, Manifest, remedy="Remove the folder to make the task again, or use another folder."
)


@dataclass(frozen=True)
class PreparedTask:
    """Paths of a task, and the measurements of its base model."""

    folder: Path
    """The folder of the task."""
    settings: TaskSettings
    """Settings it was made from."""
    measured: dict[str, Any]
    """Sizes, pass rates and the length of the warm-up, as in task.json."""

    @property
    def model(self) -> Path:
        """Folder of the base model with its tokenizer."""
        return self.folder / MODEL_FOLDER

    @property
    def train(self) -> Path:
        """Training problems, one JSON object a line."""
        return self.folder / TRAIN_FILE

    @property
    def validation(self) -> Path:
        """Validation problems, which are in neither the warm-up nor the training set."""
        return self.folder / VALIDATION_FILE

    @property
    def reward(self) -> Path:
        """File with `reward(prompt, response, answer) -> float`."""
        return self.folder / REWARD_FILE

    @property
    def n_problems(self) -> int:
        """Number of training problems."""
        return int(self.measured["train"]["problems"])

    @property
    def base_rewards(self) -> dict[str, float]:
        """Expected reward of one sample of the base model on `train` and `validation`, exact.

        It predicts an evaluation at step 0 better than the avg@16 by which the problems were chosen.
        """
        return {name: float(self.measured[name]["pass_rate"]) for name in ("train", "validation")}

    @property
    def max_response_tokens(self) -> int:
        """`max_response_tokens` for a recipe: four digits and the end token."""
        return MAX_RESPONSE_TOKENS


def prepare(
    folder: str | Path,
    family: str = "mul31",
    kind: Kind = "easy",
    seed: int = 0,
    progress: Progress | None = None,
    *,
    settings: TaskSettings | None = None,
) -> PreparedTask:
    """Make a task in `folder`, or reuse the task in it if its settings are the same.

    Args:
        folder: folder of the task; it must be new, empty, or hold the same task.
        family: a name in `FAMILIES`, or several joined with `+`.
        kind: difficulty of the problems for the base model: easy, hard or mixed.
        seed: seed of every random choice; the same seed gives the same files.
        progress: called with a stage, the amount done and the total.
        settings: all settings, in place of family, kind and seed.

    Raises:
        SpecError: invalid settings.
        InputError: the folder holds something else, or a modified task.
        RunFailed: these settings give no task.
    """
    wanted = settings or TaskSettings(family=family, kind=kind, seed=seed)
    target = Path(folder)
    found = _existing(target, wanted)
    return found if found is not None else _make(target, wanted, progress or _no_progress)


def load(folder: str | Path) -> PreparedTask:
    """Read a prepared task.

    Raises:
        IsoComputeError: the folder holds no task, or its files were modified.
    """
    target = Path(folder)
    manifest = DOCUMENT.load(target / MANIFEST)
    check_files(target, manifest.files)
    return PreparedTask(target, manifest.settings, manifest.measured)


def _existing(target: Path, wanted: TaskSettings) -> PreparedTask | None:
    """The task in the folder; None if the folder is new or empty.

    Raises:
        InputError: the folder holds something else.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    if not (target / MANIFEST).is_file():
        raise InputError(
            f"{target} holds no prepared task; accepted: a new or empty folder, or one with {MANIFEST}",
            "Use another folder.",
        )
    found = load(target)
    if found.settings != wanted:
        have, want = asdict(found.settings), asdict(wanted)
        differing = "; ".join(f"{key} {have[key]!r}, wanted {want[key]!r}" for key in want if have[key] != want[key])
        raise InputError(f"{target} holds a task with other settings: {differing}", "Use another folder.")
    return found


def _make(target: Path, settings: TaskSettings, progress: Progress) -> PreparedTask:
    """Make the task in memory, write it beside the folder, and rename it into place."""
    from isocompute_torch.tasks.build import build, versions, write

    task = build(settings, progress)
    progress("files", 0, 1)

    def make(partial: Path) -> None:
        write(task, partial)
        DOCUMENT.save(partial / MANIFEST, Manifest(settings, task.measured(), versions(), digests(partial)))

    make_whole(target, MANIFEST, make)
    progress("files", 1, 1)
    finished = _existing(target, settings)
    if finished is None:
        raise InputError(f"{target} was emptied while the task was being made", "Use another folder.")
    return finished


def make_whole(target: Path, manifest: str, make: Callable[[Path], None]) -> None:
    """Make a folder beside its place and rename it; if another process was first, its result is kept.

    Args:
        target: its place, missing or empty.
        manifest: a file that only a whole folder has.
        make: writes the files, `manifest` among them, into an empty folder.
    """
    beside = target.absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=beside, prefix=f".{target.name}."))
    try:
        partial.chmod(0o755)
        make(partial)
        try:
            partial.rename(target)
        except OSError:
            if not (target / manifest).is_file():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def digests(folder: Path) -> dict[str, str]:
    """Path of every file in a folder -> its sha256."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse a folder whose files are not those with these digests.

    Raises:
        InputError: a file is missing or was changed.
    """
    for name, digest in files.items():
        path = folder / name
        if not path.is_file() or digest_of(path) != digest:
            what = "was changed after it was made" if path.is_file() else "is missing"
            raise InputError(f"{path} {what}", f"Remove {folder} to make it again, or use another folder.")


def digest_of(path: Path) -> str:
    """Sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""
