"""What each finding means and what to try, each with where the advice comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["measured in the paper", "seen in your data", "a guess"]
PAPER: Basis = "measured in the paper"
DATA: Basis = "seen in your data"
GUESS: Basis = "a guess"
STRENGTH: tuple[Basis, ...] = (PAPER, DATA, GUESS)


@dataclass(frozen=True)
class Try:
    """One thing to try."""

    text: str
    basis: Basis
    where: str = ""
    """Place in the paper, e.g. `section 3`."""

    def __str__(self) -> str:
        """The advice with its basis in words."""
        return f"{self.text} ({self.basis}{', ' + self.where if self.where else ''})"


@dataclass(frozen=True)
class Advice:
    """What stands beside every finding of one code."""

    title: str
    """What is wrong, in a few words."""
    tries: tuple[Try, ...]


_PAIR = Try("on easy sets a KL term and an entropy bonus, always as a pair; on hard ones neither", PAPER, "section 3")
_RATE = Try("a learning rate of 1e-6 * sqrt(B / 1024), which beat constant and linear scaling", PAPER, "section 3")
_LOWER_RATE = Try("go back to a checkpoint from before, at a third of the learning rate", GUESS)
_MORE_PROBLEMS = Try("a larger B_p: it is what holds training stable, hard sets first", PAPER, "section 4")

ADVICE: dict[str, Advice] = {
    "entropy-collapse": Advice(
        "entropy is nearly used up, and the failures have not gone with it", (_PAIR, _LOWER_RATE)
    ),
    "entropy-explosion": Advice(
        "entropy grows and stays up",
        (Try("no entropy bonus without its KL term, and neither on hard sets", PAPER, "section 3"), _LOWER_RATE),
    ),
    "kl-drift": Advice("the policy runs away from the base model", (_PAIR, _RATE, _LOWER_RATE)),
    "response-length-growth": Advice(
        "responses grow",
        (
            Try("plan in tokens: responses grow along healthy runs too", PAPER, "appendix E"),
            Try("no entropy bonus alone: on hard sets it made length explode", PAPER, "section 3"),
        ),
    ),
    "truncated-responses": Advice(
        "responses are cut off at the token limit",
        (
            Try("a larger limit on response tokens (the paper's is 8,192)", GUESS),
            Try("no entropy bonus alone: on hard sets it made length explode", PAPER, "section 3"),
        ),
    ),
    "zero-variance-groups": Advice(
        "most groups are all right or all wrong and teach nothing",
        (
            Try("do not filter them away: with the filter the gain was less stable and smaller", PAPER, "section 3"),
            Try("a larger n, or problems of another difficulty; where all are right, stop", GUESS),
        ),
    ),
    "gradient-norm-spikes": Advice("the gradient norm jumps", (_LOWER_RATE, _MORE_PROBLEMS)),
    "gradient-norm-growth": Advice("the gradient norm grows and stays up", (_RATE, _LOWER_RATE)),
    "collapsed-run": Advice("the reward has lost most of its gain", (_PAIR, _RATE, _MORE_PROBLEMS, _LOWER_RATE)),
    "decayed-run": Advice(
        "the reward falls again after its best",
        (Try("keep the best checkpoint and stop; more training problems", PAPER, "section 6"), _LOWER_RATE),
    ),
    "overfitting-run": Advice(
        "the reward on held-out problems falls while that on training problems does not",
        (
            Try(
                "more training problems, or a smaller n: of 500 problems n = 512 overfits before n = 256",
                PAPER,
                "section 6",
            ),
            Try("keep the best checkpoint; leave what comes after it out of a fit", PAPER, "section 6"),
        ),
    ),
    "train-validation-gap": Advice(
        "training reward runs ahead of that on held-out problems",
        (
            Try("watch for the held-out reward to fall: laws hold only before that", PAPER, "section 6"),
            Try("evaluate a fixed probe of training problems, to tell memory from difficulty", GUESS),
        ),
    ),
    "off-policy-unstudied": Advice(
        "several updates per rollout batch",
        (Try("one update per batch, as the runs behind the published laws", PAPER, "section 3"),),
    ),
    "sampler-mismatch": Advice(
        "sampler and trainer disagree about the probabilities of what was sampled",
        (
            Try("truncated importance sampling, which corrects the usual mismatch", PAPER, "section 3"),
            Try("check that weights reach the sampler, and both sides' temperature and precision", GUESS),
        ),
    ),
    "below-predicted-band": Advice(
        "the planned run has fallen below what was predicted for it",
        (
            Try(
                "compare its recipe, data and model with those of the runs behind the fit, then look at its vitals",
                GUESS,
            ),
            Try("fit again with this run and plan the rest of the budget anew", GUESS),
        ),
    ),
    "above-predicted-band": Advice(
        "the planned run does better than what was predicted for it",
        (Try("fit again with this run: the best n for the rest of the budget may be another", GUESS),),
    ),
    "filtered-rollouts": Advice(
        "rollouts are sampled and not trained on",
        (
            Try("count them: C is what was generated, so compare runs by C and not by M", GUESS),
            Try("do not filter: with the filter the gain was less stable and smaller", PAPER, "section 3"),
        ),
    ),
}
"""By note code. Thresholds, which are this project's own, stand with the detectors."""
