"""Coins that learn to come up heads, as a backend of isocompute."""

from __future__ import annotations

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.specs.base import Count, Quantity, Spec
from isocompute_sdk.training import BackendInfo, ScriptBackend, describe_options, read_options

VERSION = "1.0"


class CoinOptions(Spec):
    """What `options:` of a study may hold."""

    coins: Count = 200
    """Coins in the box; each is one problem."""
    step_size: Quantity = 0.5
    """Learning rate of the coins: the recipe's is for language models."""


SCRIPT = """#!/usr/bin/env bash
{{ ("Run " ~ run.run_id ~ " of coin-backend " ~ version ~ ", written by isocompute.") | comment }}
{{ ("model " ~ run.model ~ " (named only), recipe " ~ run.recipe.name) | comment }}
{% include "size.sh.j2" %}
# There is nothing to resume: run it again, and it gives the same numbers.
{% include "notes.sh.j2" %}

set -euo pipefail

{% include "folder.sh.j2" %}
cat > "$folder/coin.json" <<'END_OF_RUN'
{{ run.model_dump_json(indent=1) | heredoc("END_OF_RUN") -}}
END_OF_RUN

exec "${PYTHON:-python3}" -m coin_backend.train "$folder"
"""


class CoinBackend(ScriptBackend):
    """Writes scripts that flip coins."""

    name: str = "coin"
    beside_sdk: bool = True  # training starts with the interpreter that isocompute runs in

    def describe(self) -> BackendInfo:
        return BackendInfo(
            name=self.name,
            framework="coin-backend",
            version=VERSION,
            summary="Biased coins that learn to come up heads.",
            needs=("coin-backend in the interpreter named by PYTHON (default: python3)",),
            algorithms=("grpo",),
            options=describe_options(CoinOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        options, notes = read_options(run, CoinOptions)
        found = [*run.recipe.notes(), *notes]
        if run.recipe.algorithm != "grpo":
            message = f"algorithm = {run.recipe.algorithm}: coins have neither a value model nor tokens. Use grpo."
            found.append(Note("coin-algorithm", "refuse", message))
        if max(run.hardware.gpu_counts) > 1:
            message = f"hardware.gpus = {run.hardware.gpus}: coins are flipped by one process. Set gpus to 1."
            found.append(Note("coin-one-process", "refuse", message))
        if options is not None and options.coins < run.problems_per_batch:
            message = f"option coins = {options.coins} < problems_per_batch = {run.problems_per_batch}. Use more coins."
            found.append(Note("coin-box-too-small", "refuse", message))
        return tuple(found)

    def template(self) -> str:
        return SCRIPT
