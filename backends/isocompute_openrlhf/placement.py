"""Where a run's processes sit: GPUs, nodes and vLLM engines, and the batches that fit on them.

Trainer, reference model, critic and vLLM engines share all GPUs and take turns (OpenRLHF's colocated,
sleeping mode), so one number of GPUs describes the whole run.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec

USUAL_NODE = 8
"""GPUs on a node where nothing is said about it."""


@dataclass(frozen=True)
class Placement:
    """Nodes and GPUs of one run."""

    nodes: int
    """Machines."""
    gpus_per_node: int
    """GPUs on each."""
    tensor_parallel: int
    """GPUs per vLLM engine."""

    @property
    def gpus(self) -> int:
        """GPUs in total, which is also the number of data-parallel trainer processes."""
        return self.nodes * self.gpus_per_node

    @property
    def engines(self) -> int:
        """vLLM engines: together they use every GPU."""
        return self.gpus // self.tensor_parallel


def place(run: RunSpec, options: OpenRLHFOptions) -> tuple[Placement | None, tuple[Note, ...]]:
    """The placement of a run, or None and the notes that say why there is none."""
    found = _nodes_and_gpus(run, options)
    if isinstance(found, Note):
        return None, (found,)
    nodes, gpus_per_node = found
    placement = Placement(nodes, gpus_per_node, options.tensor_parallel)
    notes: list[Note] = []
    if gpus_per_node % placement.tensor_parallel:
        message = (
            f"option tensor_parallel is {placement.tensor_parallel}, which does not divide the {gpus_per_node} GPUs "
            "of a node: engines would not use every GPU, or would span two nodes. Use a divisor."
        )
        notes.append(Note("tensor-parallel-does-not-fit", "refuse", message))
    notes += _batch_notes(run, options, placement)
    return placement, tuple(notes)


def _nodes_and_gpus(run: RunSpec, options: OpenRLHFOptions) -> tuple[int, int] | Note:
    """Nodes and GPUs per node from the options and `hardware.gpus`, or why they do not fit together."""
    allowed = run.hardware.gpus
    stated = ", ".join(map(str, allowed))
    if options.gpus_per_node is not None:
        if options.nodes is None and len(allowed) == 1 and allowed[0] % options.gpus_per_node == 0:
            return allowed[0] // options.gpus_per_node, options.gpus_per_node
        nodes = options.nodes or 1
        total = nodes * options.gpus_per_node
        if total in allowed:
            return nodes, options.gpus_per_node
        return Note(
            "placement-contradicts-hardware",
            "refuse",
            f"options nodes = {nodes} and gpus_per_node = {options.gpus_per_node} give {total} GPUs; hardware.gpus "
            f"says {stated}. Change one of them.",
            {"options": total, "hardware": list(allowed)},
        )
    if len(allowed) > 1:
        return Note(
            "several-gpu-counts",
            "refuse",
            f"hardware.gpus lists {stated}; a script is for one of them. Name it with the options nodes and "
            "gpus_per_node.",
            {"hardware": list(allowed)},
        )
    total = allowed[0]
    nodes = options.nodes or (1 if total <= USUAL_NODE else total // USUAL_NODE)
    if total % nodes or (options.nodes is None and nodes > 1 and total % USUAL_NODE):
        return Note(
            "gpus-do-not-fill-nodes",
            "refuse",
            f"{total} GPUs do not fill {nodes} equal nodes. Set the options nodes and gpus_per_node so that their "
            f"product is {total}.",
            {"hardware": list(allowed)},
        )
    return nodes, total // nodes


def _batch_notes(run: RunSpec, options: OpenRLHFOptions, placement: Placement) -> list[Note]:
    """Refusals of batches that leave ranks with unequal work: they would wait for each other forever."""
    notes: list[Note] = []
    if options.dynamic_batch:
        parts = {"GPUs": placement.gpus}
        unused = [name for name in ("micro_train_batch", "micro_rollout_batch") if getattr(options, name) != 1]
        advice = "turn dynamic_batch off, or set max_tokens_per_gpu instead"
    else:
        parts = {
            "GPUs x micro_train_batch": placement.gpus * options.micro_train_batch,
            "GPUs x micro_rollout_batch": placement.gpus * options.micro_rollout_batch,
        }
        unused = ["max_tokens_per_gpu"] if options.max_tokens_per_gpu is not None else []
        advice = "turn dynamic_batch on, or set micro_train_batch instead"
    for name in unused:
        state = "on" if options.dynamic_batch else "off"
        message = f"option {name} has no effect while dynamic_batch is {state}: {advice}."
        notes.append(Note("option-without-effect", "refuse", message))
    updates = run.recipe.updates_per_batch
    per_update = run.rollouts_per_batch // updates
    share = f" / {updates} updates" if updates > 1 else ""
    for what, divisor in parts.items():
        rest = per_update % divisor
        if rest:
            message = (
                f"{per_update} rollouts per update ({run.group_size} per problem x {run.problems_per_batch} problems"
                f"{share}) are not a multiple of {divisor} ({what}): the GPUs would get unequal work and wait for "
                f"each other. Nearest multiples: {max(per_update - rest, divisor)} and {per_update - rest + divisor}."
            )
            notes.append(Note("batch-not-divisible", "refuse", message, {"divisor": divisor, "rest": rest}))
    return notes
