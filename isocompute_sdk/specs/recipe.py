"""`Recipe`: everything about one update that could differ between training frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from isocompute_sdk.notes import Note
from isocompute_sdk.specs.base import Flag, Spec, Text, in_unit
from isocompute_sdk.specs.syntax.complaints import problem, suggestion
from isocompute_sdk.specs.syntax.quantities import Count, Items, Number, Quantity

PresetName = Literal["easy", "hard", "mixture"]
PRESET_NAMES: tuple[PresetName, ...] = get_args(PresetName)

_OFF: dict[str, object] = {"kl_coef": 0.0, "entropy_coef": 0.0, "min_problems_per_batch": 64}
PRESETS: dict[PresetName, dict[str, object]] = {"easy": {}, "hard": _OFF, "mixture": _OFF}
"""What each preset changes in the defaults of the fields, which are those of `easy`."""

Coefficient = Annotated[float, Number(ge=0)]
Fraction01 = Annotated[float, Number(ge=0, le=1)]
Decay = Annotated[float, Number(ge=0, lt=1)]

_EXPONENT = {"sqrt": 0.5, "linear": 1.0, "constant": 0.0}


class Recipe(Spec):
    """One training recipe, complete: a backend either carries out every field or refuses the run.

    Values that are not given come from the preset named by `based_on`: `Recipe()` is the easy preset, and
    `Recipe(based_on="hard", kl_coef=0.002)` the hard one with one change. In YAML the bare name of a preset, or
    a mapping with `preset:` and the changes, does the same.
    """

    based_on: PresetName = "easy"
    """Preset that supplies the values not given: easy (base model's avg@16 in 0.3 to 0.6), hard (0 to 0.0625)
    or mixture."""
    name: Text = "easy"
    """Label for reports. Default: the preset's name."""
    algorithm: Literal["grpo", "ppo", "cispo"] = "grpo"
    """Policy-gradient algorithm. Source: paper section 3 (ppo and cispo are its ablations)."""
    normalize_advantage: Flag = True
    """Divide advantages by their standard deviation: within the group for grpo and cispo, over the batch for ppo.
    Source: paper section 3."""
    std_epsilon: Annotated[Quantity, in_unit("reward")] = 1e-6
    """Added to the standard deviation before dividing, in units of reward. Source: assumed."""
    kl_coef: Annotated[Coefficient, in_unit("reward per nat")] = 1e-3
    """Weight of the KL penalty to the base model, reward per nat; 0 is off. Source: on for easy, off for hard and
    mixtures: paper section 3; the value 1e-3: assumed."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Per-token estimator of the KL, with r = log(pi / pi_ref): k1 = r, k2 = r^2 / 2, k3 = exp(-r) - 1 + r.
    Source: assumed."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Whether the KL penalty is a term of the loss or is subtracted from the reward. Source: assumed."""
    entropy_coef: Annotated[Coefficient, in_unit("reward per nat")] = 1e-3
    """Weight of the entropy bonus, reward per nat; 0 is off. Source: on for easy, off for hard and mixtures: paper
    section 3; the value 1e-3: assumed."""
    zero_variance_filter_policy: Flag = False
    """Leave groups whose rewards are all equal out of the policy loss. Source: paper section 3 (tried, then off)."""
    zero_variance_filter_kl: Flag = False
    """Leave groups whose rewards are all equal out of the KL term. Source: paper section 3 (tried, then off)."""
    zero_variance_filter_entropy: Flag = False
    """Leave groups whose rewards are all equal out of the entropy term. Source: paper section 3 (tried, then off)."""
    learning_rate_rule: Literal["sqrt", "linear", "constant"] = "sqrt"
    """How the learning rate grows with the rollout batch. Source: paper section 3."""
    learning_rate_anchor: Quantity = 1e-6
    """Learning rate of the policy at the anchor batch, per update step. Source: paper section 3."""
    learning_rate_anchor_batch: Annotated[Count, in_unit("rollouts")] = 1024
    """Rollouts per batch at which the anchor holds. Source: paper section 3."""
    warmup_steps: Annotated[int, Number(whole=True, ge=0), in_unit("update steps")] = 10
    """Update steps of linear warm-up, constant after. Source: paper section 3."""
    adam_betas: Annotated[tuple[Decay, Decay], Items(unique=False, length=2)] = (0.9, 0.999)
    """Decay rates of AdamW's two running means, per update step. Source: assumed."""
    weight_decay: Coefficient = 0.0
    """AdamW's decoupled weight decay, as a multiple of the learning rate. Source: assumed."""
    gradient_clip: Annotated[Quantity, in_unit("norm of the gradient")] = 1.0
    """Largest global norm of the gradient. Source: assumed."""
    ratio_clip: Annotated[float, Number(gt=0, lt=1)] = 0.2
    """Clip range of the policy ratio, 1 - clip to 1 + clip. Without effect while every batch gets one update.
    Source: assumed."""
    importance_sampling: Literal["tis", "none"] = "tis"
    """Correction for the sampler's log-probabilities differing from the trainer's: tis (truncated importance
    sampling, per token) or none. Source: paper section 3."""
    tis_cap: Annotated[float, Number(ge=1)] = 2.0
    """Upper limit of the truncated importance weight; larger weights are set to it, none is masked.
    Source: assumed."""
    loss_aggregation: Literal["token-mean", "seq-mean-token-mean"] = "token-mean"
    """Mean over all tokens of the batch, or first over each response and then over responses. Source: assumed."""
    temperature: Quantity = 0.6
    """Sampling temperature in training. Source: paper section 3."""
    top_p: Annotated[float, Number(gt=0, le=1)] = 1.0
    """Nucleus sampling mass in training; 1 samples from the whole distribution. Source: paper section 3."""
    max_response_tokens: Annotated[Count, in_unit("tokens")] = 8192
    """Longest response, in tokens. Source: paper section 3."""
    max_prompt_tokens: Annotated[Count, in_unit("tokens")] = 1024
    """Longest prompt, in tokens. Source: assumed."""
    updates_per_batch: Annotated[Count, in_unit("update steps")] = 1
    """Optimiser steps per rollout batch; 1 is fully on-policy. Source: paper section 3."""
    min_problems_per_batch: Annotated[Count, in_unit("problems")] = 32
    """Smallest number of problems per batch that a plan may use (stability floor for B_p). Source: assumed, from
    section 4 (32 for easy, 64 for hard and mixtures)."""
    value_learning_rate: Quantity = 1e-5
    """ppo only: learning rate of the value model, not scaled with the batch. Source: assumed."""
    gae_lambda: Fraction01 = 1.0
    """ppo only: lambda of generalised advantage estimation, per token. Source: assumed."""
    gae_gamma: Fraction01 = 1.0
    """ppo only: discount per token. Source: assumed."""
    value_clip: Annotated[Quantity, in_unit("reward")] = 0.5
    """ppo only: clip range of the value update, in units of reward. Source: assumed."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, value: Any) -> Any:
        if isinstance(value, Recipe):
            return value
        if isinstance(value, str):
            key, given = None, {"preset": cast("object", value)}
        elif isinstance(value, Mapping):
            given = dict(cast("Mapping[str, object]", value))
            key = "preset" if "preset" in given else "based_on"
        else:
            raise problem(accepted=f"{', '.join(PRESET_NAMES)}, or a mapping with the fields of a recipe")
        if "preset" in given and "based_on" in given:
            raise problem(message="received both preset and based_on, which mean the same", hint="Keep one of them.")
        base = given.pop(key or "preset", "easy")
        if base not in PRESET_NAMES:
            raise problem(
                message=f"received {base!r}; accepted presets: {', '.join(PRESET_NAMES)}",
                hint=suggestion(base, PRESET_NAMES) if isinstance(base, str) else None,
                field=key,
            )
        # A preset that nobody named is a default, see `given`.
        named = {} if key is not None and key not in value else {"based_on": base}
        return {**named, "name": base, **PRESETS[base], **given}

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        for term, coefficient in (("kl", self.kl_coef), ("entropy", self.entropy_coef)):
            if getattr(self, f"zero_variance_filter_{term}") and coefficient == 0:
                raise problem(
                    message=f"zero_variance_filter_{term} is true, but {term}_coef is 0: there is no {term} term",
                    hint=f"Set zero_variance_filter_{term} to false, or {term}_coef above 0.",
                    field=f"zero_variance_filter_{term}",
                )
        return self

    @classmethod
    def preset(cls, name: PresetName, **changes: Any) -> Self:
        """The recipe of paper section 3 for one difficulty, with changes where given.

        Raises:
            SpecError: an unknown preset, or a change that is not valid.
        """
        return cls.model_validate({"preset": name, **changes})

    @property
    def given(self) -> frozenset[str]:
        """Fields with a value that somebody chose, KL term and entropy bonus of a preset chosen by name among them.

        A plan from runs takes every other field from the runs.
        """
        chosen = self.model_fields_set - {"based_on", "name"}
        if "based_on" in self.model_fields_set:
            chosen = chosen | {"kl_coef", "entropy_coef"}
        floor = PRESETS[self.based_on].get("min_problems_per_batch")
        return frozenset(chosen - ({"min_problems_per_batch"} if self.min_problems_per_batch == floor else set[str]()))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; `given` grows by them.

        Raises:
            SpecError: an unknown field, or values that do not fit together.
        """
        changed = super().replace(**changes)
        object.__setattr__(changed, "__pydantic_fields_set__", self.model_fields_set | set(changes))
        return changed

    def learning_rate(self, rollouts_per_batch: float) -> float:
        """Learning rate anchor * (B / anchor_batch)^p, p = 1/2 (sqrt), 1 (linear) or 0 (constant); paper section 3.

        Examples:
            >>> iso.Recipe().learning_rate(4096)
            2e-06
        """
        ratio = rollouts_per_batch / self.learning_rate_anchor_batch
        return self.learning_rate_anchor * math.pow(ratio, _EXPONENT[self.learning_rate_rule])

    def notes(self) -> tuple[Note, ...]:
        """What in this recipe the paper advises against or did not study."""
        notes: list[Note] = []
        if (self.kl_coef > 0) != (self.entropy_coef > 0):
            alone = ", where an entropy bonus alone made entropy and length explode on hard problems"
            message = (
                f"kl_coef = {self.kl_coef:g} and entropy_coef = {self.entropy_coef:g}: the paper has both on or both "
                f"off (section 3){alone if self.entropy_coef > 0 else ''}."
            )
            data = {"kl_coef": self.kl_coef, "entropy_coef": self.entropy_coef}
            notes.append(Note("kl-entropy-unpaired", "warning", message, data))
        if self.updates_per_batch > 1:
            message = (
                f"updates_per_batch = {self.updates_per_batch}: the laws were measured fully on-policy, with one "
                "update per batch; what they say about update steps may not hold."
            )
            notes.append(
                Note("off-policy-unstudied", "warning", message, {"updates_per_batch": self.updates_per_batch})
            )
        return tuple(notes)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The name of a preset, or a mapping in which `preset` may stand for `based_on`."""
        reference = super().__get_pydantic_json_schema__(schema, handler)
        properties = handler.resolve_ref_schema(reference)["properties"]
        properties["preset"] = {**properties["based_on"], "title": "Preset"}
        return {"anyOf": [{"enum": list(PRESET_NAMES)}, reference]}
