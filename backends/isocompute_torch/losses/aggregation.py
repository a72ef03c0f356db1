"""How per-token values become one number: `Loss`, `aggregate` and the normaliser of a whole rollout batch."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Detached means over the same rows and tokens; like `value`, they are added over micro-batches."""


def aggregate(
    value_RT: Tensor, mask_RT: Tensor, *, aggregation: Aggregation, normaliser: float, weight_R: Tensor | None = None
) -> Tensor:
    """Weighted sum of per-token values over N, the share of these rows in the mean over the whole batch.

    token-mean (DAPO, arXiv 2503.14476, eq. 8):           sum_r w_r sum_t m_rt x_rt / N,  N = sum_r w_r sum_t m_rt
    seq-mean-token-mean (GRPO, arXiv 2402.03300, eq. 3):  sum_r w_r (sum_t m_rt x_rt / sum_t m_rt) / N,  N = sum_r w_r

    Both sums in N run over the whole rollout batch (`batch_normaliser`), not over the rows given here: the
    gradients of micro-batches then add up to exactly that of the full batch.

    Args:
        value_RT: per-token values, shape (R, T), or several quantities stacked before these axes. Entries that
            are masked or have weight 0 may hold anything.
        mask_RT: 1 for tokens that count, 0 for padding, shape (R, T).
        aggregation: which of the two means.
        normaliser: N.
        weight_R: weight w of each row, shape (R,): how many equal rollouts it stands for, or 0 to leave it out.
            None is 1 everywhere.
    """
    per_row_R = torch.where(counted(mask_RT, weight_R), value_RT, 0.0).sum(-1)
    if _checked(aggregation) == "seq-mean-token-mean":
        per_row_R = per_row_R / mask_RT.sum(-1).clamp(min=1.0)
    if weight_R is not None:
        per_row_R = per_row_R * weight_R.to(per_row_R.dtype)
    return per_row_R.sum(-1) / normaliser


def batch_normaliser(mask_RT: Tensor, *, aggregation: Aggregation, weight_R: Tensor | None = None) -> float:
    """N of `aggregate` for a whole batch: its weighted number of tokens (token-mean) or of responses (seq-mean).

    1 where nothing counts (every row left out), so that the mean over nothing is 0 and not NaN. Responses
    without a single token count in neither.
    """
    mask_RT = mask_RT.to(torch.float64)
    count_R = mask_RT.sum(-1) if _checked(aggregation) == "token-mean" else mask_RT.amax(-1)
    total = float((count_R if weight_R is None else count_R * weight_R.to(torch.float64)).sum())
    return total if total > 0 else 1.0


def batch_means(
    values: Mapping[str, Tensor],
    mask_RT: Tensor,
    *,
    aggregation: Aggregation,
    normaliser: float,
    weight_R: Tensor | None = None,
) -> dict[str, float]:
    """`aggregate` of several detached (R, T) quantities as floats, read from the device in one transfer."""
    stacked_SRT = torch.stack([value.detach() for value in values.values()])
    means_S = aggregate(stacked_SRT, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R)
    return dict(zip(values, means_S.tolist(), strict=True))


def counted(mask_RT: Tensor, weight_R: Tensor | None) -> Tensor:
    """True for the tokens that count: sampled, and in a row whose weight is not 0; shape (R, T)."""
    counted_RT = mask_RT > 0
    return counted_RT if weight_R is None else counted_RT & (weight_R != 0).unsqueeze(-1)


def _checked(aggregation: str) -> str:
    if aggregation not in AGGREGATIONS:
        raise SpecError(
            f"loss_aggregation: received {aggregation!r}; accepted: {', '.join(AGGREGATIONS)}", "Use one of these."
        )
    return aggregation
