"""`Seen`: what every term of the loss reads of one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Seen:
    """R rows of at most T sampled tokens. Masked entries, and rows of weight 0, may hold any value."""

    logprob_RT: Tensor
    """log pi_theta of the sampled tokens, logits divided by the temperature; with gradient."""
    sampled_logprob_RT: Tensor
    """log mu of the same tokens, from the sampler."""
    advantage: Tensor
    """Advantage per response, shape (R,), or per token, shape (R, T)."""
    mask_RT: Tensor
    """1 for sampled tokens including the end token, 0 after."""
    old_logprob_RT: Tensor | None = None
    """log pi_old; None on the first update of a batch, where pi_old is pi_theta."""
    reference_logprob_RT: Tensor | None = None
    """log pi_ref at the same temperature; needed by `kl_loss`."""
    entropy_RT: Tensor | None = None
    """`token_entropy` of the distribution of each sampled token; needed by `entropy_loss`."""
    value_RT: Tensor | None = None
    """Value of the state before each sampled token, with gradient; needed by `value_loss`, as the next two."""
    old_value_RT: Tensor | None = None
    """The values that the advantages were computed from."""
    return_RT: Tensor | None = None
    """Targets of the values, see `generalised_advantages`."""

    def advantage_RT(self, counted_RT: Tensor) -> Tensor:
        """Advantages as constants of shape (R, T) in the dtype of the log-probabilities; 0 where `counted_RT` is 0."""
        advantage = self.advantage.unsqueeze(-1) if self.advantage.ndim == 1 else self.advantage
        return torch.where(counted_RT > 0, advantage.detach().to(self.logprob_RT.dtype), 0.0)
