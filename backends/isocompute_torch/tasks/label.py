"""How often the base model solves each problem.

Exactly one token sequence is right: the answer and the end token. So the pass rate of a single sample is a product of
five probabilities, which one forward pass gives exactly, and the number of right responses among k independent samples
is binomial with that rate. Drawing from that distribution replaces sampling k responses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isocompute_torch.tasks.tiny_model import EncodedProblems, answer_logprobs

CHUNK = 2048
"""Problems per forward pass; fixed, because results of another chunk size differ in their last bits."""


@torch.no_grad()
def pass_rates(model: Any, problems: EncodedProblems, temperature: float = 1.0) -> NDArray[np.float64]:
    """Probability that one sampled response is the answer followed by the end token, shape (problems,)."""
    chunks = [
        EncodedProblems(ids_PT, answer_PT)
        for ids_PT, answer_PT in zip(problems.ids_PT.split(CHUNK), problems.answer_PT.split(CHUNK), strict=True)
    ]
    logprobs_P = torch.cat([answer_logprobs(model, chunk, temperature).double().sum(-1) for chunk in chunks])
    # The exponential of a sum of rounded logarithms can exceed 1 in its last digit.
    return np.asarray(logprobs_P.exp().clamp(max=1.0).cpu().numpy(), dtype=np.float64)


def sampled_passes(rates_P: NDArray[np.float64], samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Number of right responses among `samples` independent ones for each problem, shape (problems,)."""
    return rng.binomial(samples, rates_P).astype(np.int64)
