"""Meaning of each finding and what to try, with the basis of each piece of advice."""

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
        """The advice with its basis."""
        return f"{self.text} ({self.basis}{', ' + self.where if self.where else ''})"


@dataclass(frozen=True)
class Advice:
    """Title and advice of all findings with one code."""

    title: str
    """What is wrong, in a few words."""
    tries: tuple[Try, ...]


_PAIR = Try("on easy sets use a KL term and an entropy bonus, always both; on hard sets neither", PAPER, "section 3")
_RATE = Try("a learning rate of 1e-6 * sqrt(B / 1024), which beat constant and linear scaling", PAPER, "section 3")
_LOWER_RATE = Try("restart from an earlier checkpoint with a third of the learning rate", GUESS)
_MORE_PROBLEMS = Try("a larger B_p, which stabilises training, most of all on hard sets", PAPER, "section 4")

ADVICE: dict[str, Advice] = {
    "entropy-collapse": Advice("entropy is nearly used up while most failures remain", (_PAIR, _LOWER_RATE)),
    "entropy-explosion": Advice(
        "entropy grows and stays up",
        (Try("no entropy bonus without its KL term, and neither on hard sets", PAPER, "section 3"), _LOWER_RATE),
    ),
    "kl-drift": Advice("the policy drifts far from the base model", (_PAIR, _RATE, _LOWER_RATE)),
    "response-length-growth": Advice(
        "responses grow",
        (
            Try("plan in tokens: responses grow in healthy runs too", PAPER, "appendix E"),
            Try("no entropy bonus alone: on hard sets it made length explode", PAPER, "section 3"),
        ),
    ),
    "truncated-responses": Advice(
        "responses are truncated at the token limit",
        (
            Try("a larger limit on response tokens (the paper's is 8,192)", GUESS),
            Try("no entropy bonus alone: on hard sets it made length explode", PAPER, "section 3"),
        ),
    ),
    "nothing-learned": Advice(
        "the run has learned nothing",
        (
            Try("the reward function by hand on a few responses: does it find the answer in them?", GUESS),
            Try("a larger n, or easier problems, if the rewards are 0; harder ones if they are 1", GUESS),
        ),
    ),
    "zero-variance-groups": Advice(
        "most groups have equal rewards and teach nothing",
        (
            Try("do not filter them: with the filter the gain was smaller and less stable", PAPER, "section 3"),
            Try("a larger n, or problems of another difficulty; if all are solved, stop", GUESS),
        ),
    ),
    "gradient-norm-spikes": Advice("the gradient norm jumps", (_LOWER_RATE, _MORE_PROBLEMS)),
    "gradient-norm-growth": Advice("the gradient norm grows and stays up", (_RATE, _LOWER_RATE)),
    "collapsed-run": Advice("the reward has lost most of its gain", (_PAIR, _RATE, _MORE_PROBLEMS, _LOWER_RATE)),
    "decayed-run": Advice(
        "the reward falls after its best level",
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
            Try("keep the best checkpoint; leave later evaluations out of a fit", PAPER, "section 6"),
        ),
    ),
    "train-validation-gap": Advice(
        "training reward rises faster than held-out reward",
        (
            Try("watch for a fall of the held-out reward: laws hold only before it", PAPER, "section 6"),
            Try("evaluate a fixed probe of training problems, to separate memorisation from difficulty", GUESS),
        ),
    ),
    "off-policy-unstudied": Advice(
        "several updates per rollout batch",
        (Try("one update per batch, as in the runs behind the published laws", PAPER, "section 3"),),
    ),
    "sampler-mismatch": Advice(
        "sampler and trainer assign different probabilities to sampled tokens",
        (
            Try("truncated importance sampling, which corrects the usual mismatch", PAPER, "section 3"),
            Try("check that weights reach the sampler, and both sides' temperature and precision", GUESS),
        ),
    ),
    "below-predicted-band": Advice(
        "the planned run is below its prediction",
        (
            Try(
                "compare its recipe, data and model with those of the runs behind the fit, then check its step metrics",
                GUESS,
            ),
            Try("fit again with this run and plan the rest of the budget again", GUESS),
        ),
    ),
    "above-predicted-band": Advice(
        "the planned run is above its prediction",
        (Try("fit again with this run: the best n for the rest of the budget may differ", GUESS),),
    ),
    "filtered-rollouts": Advice(
        "some rollouts are sampled but not trained on",
        (
            Try("count them: C counts generated rollouts, so compare runs by C, not by M", GUESS),
            Try("do not filter: with the filter the gain was smaller and less stable", PAPER, "section 3"),
        ),
    ),
}
"""Advice by note code. The thresholds, which are this project's own, are in the detectors' modules."""
