"""What decides every bit of a prepared task: its settings are the key under which a finished folder is reused."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from isocompute_sdk.errors import SpecError
from isocompute_torch.tasks.families import families

Kind = Literal["easy", "hard", "mixed"]
KINDS: tuple[Kind, ...] = get_args(Kind)

HEAD_SIZE = 32
"""Smallest attention head that vLLM's attention kernels accept."""


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
    """Standard deviation of the initial weights. The usual 0.02 is for wider models: here it takes twice the steps."""

    def __post_init__(self) -> None:
        if self.hidden_size < HEAD_SIZE or self.hidden_size % HEAD_SIZE:
            raise SpecError(
                f"hidden_size: received {self.hidden_size}; accepted: multiples of {HEAD_SIZE}", "Choose a multiple."
            )

    @property
    def heads(self) -> int:
        """Attention heads, each with keys and values of its own."""
        return self.hidden_size // HEAD_SIZE


@dataclass(frozen=True)
class WarmUp:
    """Supervised steps that turn a random model into a base model worth training with rewards."""

    pass_rate: float = 0.35
    """Stop once the mean pass rate of single samples is this high: far enough for an Easy set of 1,300 problems or
    more at every seed that was tried. A fixed number of steps instead would leave sets whose sizes differ several
    times from seed to seed."""
    max_steps: int = 1500
    """Give up after so many steps."""
    check_every: int = 20
    """Steps between two looks at the pass rate."""
    batch: int = 128
    """Problems per step."""
    learning_rate: float = 2e-3
    """AdamW's, after a linear rise over the first 20 steps."""


@dataclass(frozen=True)
class TaskSettings:
    """Everything that a prepared task depends on."""

    family: str = "mul31"
    """One family, or several joined with `+`."""
    kind: Kind = "easy"
    """easy: avg@16 in 0.3 to 0.6; hard: at most 0.0625; mixed: half of each."""
    seed: int = 0
    """Decides initial weights, order of the warm-up, labels and choice of problems."""
    validation: int = 200
    """Problems that are in neither the warm-up nor the training set."""
    held_out_share: float = 0.3
    """Share of all problems kept out of the warm-up; validation problems come from these."""
    label_samples: int = 16
    """Samples per problem behind its difficulty."""
    temperature: float = 1.0
    """Sampling temperature of the labels."""
    shape: ModelShape = ModelShape()
    warm_up: WarmUp = WarmUp()
    device: str = "cpu"
    """Where the warm-up runs, as torch names it. On a CPU the same settings give the same bits."""

    def __post_init__(self) -> None:
        families(self.family)
        if self.kind not in KINDS:
            raise SpecError(f"received set {self.kind!r}; accepted: {', '.join(KINDS)}", "Use one of these sets.")
        if isinstance(self.seed, bool) or self.seed < 0:
            raise SpecError(f"seed: received {self.seed!r}; accepted: whole numbers >= 0", "Give a whole number.")

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return asdict(self)
