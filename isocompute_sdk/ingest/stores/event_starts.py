"""How a TensorBoard event file begins: the arguments that the Hugging Face Trainer writes as text, and its first step.

The arguments stand in the second record, as JSON under the tag `args/text_summary`. Only the beginning of a file is
read, and nothing but the standard library is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.stores import wire
from isocompute_sdk.ingest.stores.packed import DAMAGED, open_bytes

ARGUMENTS_TAG = "args/text_summary"
_HEADER = struct.Struct("<QI")
_FOOTER_SIZE = 4
_LONGEST_RECORD, _MOST_RECORDS = 16 << 20, 5000
_STEP, _SUMMARY, _VALUE, _TAG, _TENSOR, _STRINGS = 2, 5, 1, 1, 8, 8
_OF_RUN = (
    "num_generations",
    "generation_batch_size",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "num_iterations",
    "learning_rate",
    "lr_scheduler_type",
    "beta",
    "epsilon",
    "epsilon_high",
    "loss_type",
    "scale_rewards",
    "reward_weights",
    "temperature",
    "top_p",
    "max_prompt_length",
    "max_completion_length",
    "seed",
    "optim",
    "weight_decay",
    "max_grad_norm",
)
"""Arguments that are the same in a run and its resume; others, such as how long it is to train, may change."""


@dataclass(frozen=True)
class EventStart:
    """The beginning of one event file."""

    path: Path
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All arguments of the trainer; empty if the file holds none."""
    first_step: int | None = None
    """The first step at which an update was logged; None if there is none."""

    def goes_on(self, before: EventStart) -> bool:
        """Whether this start goes on with the run of an earlier one, and is no run of its own."""
        if not self.arguments and not before.arguments:
            return True
        if _of_run(self.arguments) != _of_run(before.arguments):
            return False
        if self.arguments.get("resume_from_checkpoint"):
            return True
        # `train(resume_from_checkpoint=...)` leaves no trace in the arguments.
        interval = self.arguments.get("logging_steps", 1)
        first = max(1.0, float(interval)) if isinstance(interval, int | float) else 1.0
        return self.first_step is not None and self.first_step > first


def read_event_start(path: Path) -> EventStart:
    """The arguments and the first step of an event file; what is damaged is left out, as the full reader reports it."""
    arguments: dict[str, Any] = {}
    try:
        with open_bytes(path) as file:
            for event in _records(file):
                step, tags = _summary(event)
                if ARGUMENTS_TAG in tags:
                    arguments = _arguments(tags[ARGUMENTS_TAG])
                # Evaluations may precede the first update.
                if any(not tag.startswith(("eval", "args/", "model_config")) for tag in tags):
                    return EventStart(path, arguments, step)
    except (OSError, ValueError, *DAMAGED):
        pass
    return EventStart(path, arguments)


def _of_run(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: arguments[key] for key in _OF_RUN if key in arguments}


def _records(file: Any) -> Iterator[bytes]:
    for _ in range(_MOST_RECORDS):
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return
        length = _HEADER.unpack(head)[0]
        if length > _LONGEST_RECORD:
            return
        payload = file.read(length)
        if len(payload) < length or len(file.read(_FOOTER_SIZE)) < _FOOTER_SIZE:
            return
        yield payload


def _summary(event: bytes) -> tuple[int, dict[str, bytes]]:
    """Step and summary values by their tags."""
    step, tags = 0, dict[str, bytes]()
    for number, value in wire.fields(event):
        if number == _STEP and isinstance(value, int):
            step = value
        elif number == _SUMMARY and isinstance(value, bytes):
            for kind, content in wire.fields(value):
                if kind == _VALUE and isinstance(content, bytes):
                    tags[wire.text(wire.first(content, _TAG))] = content
    return step, tags


def _arguments(value: bytes) -> dict[str, Any]:
    try:
        found: Any = parse_json(wire.text(wire.first(value, _TENSOR, _STRINGS)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
