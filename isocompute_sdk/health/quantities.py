"""What detectors look at, and the metric names under which it is found.

The built-in runner's name comes first; the others are those that frameworks write into their own logs, accepted where
a log was read without renaming.
"""

from __future__ import annotations

TRAIN_SETS = ("train", "train_probe")
"""Evaluation sets of training problems: what each update measured, and the fixed probe."""
NAMES: dict[str, tuple[str, ...]] = {
    "train_reward": ("train_reward", "critic/score/mean", "train/reward"),
    "entropy": ("entropy", "actor/entropy", "train/entropy_loss"),
    "kl": ("kl", "actor/kl_loss", "train/kl"),
    "response_length": (
        "response_length",
        "response_length/mean",
        "train/response_length",
        "completions/mean_length",
    ),
    "truncated_share": (
        "truncated_share",
        "response_length/clip_ratio",
        "train/truncated",
        "completions/clipped_ratio",
    ),
    "zero_variance_share": ("zero_variance_share", "frac_reward_zero_std"),
    "gradient_norm": ("gradient_norm", "actor/grad_norm", "train/actor_grad_norm", "grad_norm"),
    "importance_weight": ("importance_weight_mean", "rollout_corr/rollout_is_mean"),
    "importance_capped": ("importance_capped_share",),
    "sampler_kl": ("sampler_kl", "rollout_corr/kl", "train/vllm_kl"),
    "trained_share": ("trained_share",),
}
"""Quantity -> accepted metric names, the first that a run has counts."""
QUANTITY_OF: dict[str, str] = {name: quantity for quantity, names in NAMES.items() for name in names}
REWARD, PROBE = "reward", "probe"
"""Quantities that have no fixed name: the metric on held-out problems, and the same on the training probe."""
