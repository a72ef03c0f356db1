"""How per-token values become one number: `Mean`, an average over the whole rollout batch, and `Loss`, its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from isocompute_sdk.errors import SpecError

Aggregation = Literal["token-mean", "seq-mean-token-mean"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


class Loss(NamedTuple):
    """One term of the loss over one micro-batch, divided by the normaliser of the whole batch."""

    value: Tensor
    """Scalar to minimise. The values of the micro-batches of one batch add up to the loss of the whole batch."""
    stats: dict[str, float]
    """Detached means over the same rows and tokens; they add up over micro-batches, as `value` does."""


@dataclass(frozen=True)
class Mean:
    """A weighted mean over the tokens of a whole rollout batch, applied to some of its rows.

    token-mean (DAPO, arXiv 2503.14476, eq. 8):           sum_r w_r sum_t m_rt x_rt / N,  N = sum_r w_r sum_t m_rt
    seq-mean-token-mean (GRPO, arXiv 2402.03300, eq. 3):  sum_r w_r (sum_t m_rt x_rt / sum_t m_rt) / N,  N = sum_r w_r

    Both sums in N run over the whole batch, so that the gradients of micro-batches add up to exactly that of the batch.
    """

    aggregation: Aggregation
    """Which of the two means."""
    normaliser: float
    """N."""
    weight_R: Tensor
    """Weight w of each of these rows: the number of equal rollouts it represents, or 0 to exclude it."""

    @classmethod
    def of_batch(cls, mask_RT: Tensor, aggregation: Aggregation, weight_R: Tensor | None = None) -> Mean:
        """The mean over all rows of a batch.

        N is 1 if no row counts, so that the mean over nothing is 0 and not NaN. Responses without a token count in
        neither mean.

        Args:
            mask_RT: 1 for sampled tokens of the WHOLE batch, shape (R, T).
            aggregation: which of the two means.
            weight_R: weights; None is 1 everywhere.

        Raises:
            SpecError: unknown aggregation.
        """
        if aggregation not in AGGREGATIONS:
            raise SpecError(
                f"loss_aggregation: received {aggregation!r}; accepted: {', '.join(AGGREGATIONS)}", "Use one of these."
            )
        weight_R = mask_RT.new_ones(len(mask_RT)) if weight_R is None else weight_R
        mask_RT = mask_RT.to(torch.float64)
        count_R = mask_RT.sum(-1) if aggregation == "token-mean" else mask_RT.amax(-1)
        total = float((count_R * weight_R.to(torch.float64)).sum())
        return cls(aggregation, total if total > 0 else 1.0, weight_R)

    def rows(self, index: Tensor | slice) -> Mean:
        """The same mean, applied to only these rows."""
        return replace(self, weight_R=self.weight_R[index])

    def counted(self, mask_RT: Tensor) -> Tensor:
        """True for sampled tokens in rows of a weight other than 0, shape (R, T)."""
        return (mask_RT > 0) & (self.weight_R != 0).unsqueeze(-1)

    def of(self, value_RT: Tensor, mask_RT: Tensor) -> Tensor:
        """Share of these rows in the mean of `value_RT`.

        Args:
            value_RT: values per token, shape (R, T), or several quantities stacked before these axes.
            mask_RT: 1 for sampled tokens.
        """
        per_row_R = torch.where(self.counted(mask_RT), value_RT, 0.0).sum(-1)
        if self.aggregation == "seq-mean-token-mean":
            per_row_R = per_row_R / mask_RT.sum(-1).clamp(min=1.0)
        return (per_row_R * self.weight_R.to(per_row_R.dtype)).sum(-1) / self.normaliser

    def loss(self, loss_RT: Tensor, mask_RT: Tensor, stats: Mapping[str, Tensor]) -> Loss:
        """The mean of `loss_RT`, with the means of `stats`, which are read from the device in one transfer."""
        means_S = self.of(torch.stack([stat_RT.detach() for stat_RT in stats.values()]), mask_RT)
        return Loss(self.of(loss_RT, mask_RT), dict(zip(stats, means_S.tolist(), strict=True)))
