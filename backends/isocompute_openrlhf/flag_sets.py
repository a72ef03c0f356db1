"""Which release of OpenRLHF a command line was written for: its flags were renamed twice.

Up to 0.10.1 names were flat (`--train_batch_size`); 0.10.2 brought dots; 0.11.1 added a switch; 0.11.2 replaced the
flags of the importance-sampling correction (seen in the releases themselves). Flags that all releases share, or that
none has, are ignored.
"""

from __future__ import annotations

import re

from isocompute_openrlhf.flags import VERSION

FLAT = "0.10.1 or earlier"
DOTTED = "0.10.2 to 0.11.1"
_PROGRAM = "openrlhf.cli."
_FLAG = re.compile(r"(?<![\w-])--([A-Za-z][\w.]*)")
FLAT_NAMES = frozenset(
    {
        "pretrain",
        "remote_rm_url",
        "train_batch_size",
        "rollout_batch_size",
        "micro_train_batch_size",
        "micro_rollout_batch_size",
        "n_samples_per_prompt",
        "advantage_estimator",
        "init_kl_coef",
        "use_kl_loss",
        "kl_estimator",
        "actor_learning_rate",
        "prompt_data",
        "input_key",
        "label_key",
        "colocate_all_models",
        "vllm_num_engines",
        "enable_vllm_is_correction",
        "entropy_loss_coef",
        "save_steps",
        "eval_steps",
    }
)
"""Flat names of what a run needs."""
OLD_DOTTED = frozenset({"algo.advantage.is_correction_enable", "algo.advantage.is_correction_type"})
"""Dotted names that 0.11.2 removed."""
NEW_DOTTED = frozenset(
    {
        "algo.advantage.is_correction_level",
        "algo.advantage.is_correction_mode",
        "algo.advantage.is_correction_gating",
        "actor.loss_agg_mode",
    }
)
"""Dotted names that 0.11.2 brought."""


def written_for(command: str) -> str | None:
    """The release, or range of releases, whose flags a command or script uses; None if it does not say.

    Args:
        command: the text of a script, or a command line.
    """
    if _PROGRAM not in command:
        return None
    names = set(_FLAG.findall(command))
    if names & OLD_DOTTED:
        return DOTTED
    if names & FLAT_NAMES:
        return FLAT
    return VERSION if names & NEW_DOTTED else None
