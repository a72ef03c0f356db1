"""Settings of a prepared task. They determine its files; a finished folder is reused if its settings are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from isocompute_sdk.errors import SpecError
from isocompute_torch.tasks.problem_families import families

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
