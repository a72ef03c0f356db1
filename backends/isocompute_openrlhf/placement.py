"""Placement of a run: GPUs, machines and vLLM engines, and notes on batches that do not fit.

Trainer, reference model, critic and vLLM engines share all GPUs and take turns (OpenRLHF's colocated, sleeping mode),
so one number of GPUs describes the whole run.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import checks

LARGEST_PACKED_BATCH = 16384
"""Largest batch in rollouts that is packed by tokens.

OpenRLHF's partitioning (utils/seqlen_balancing.py) takes time and memory that grow with the square of the
batch; measured with samples of 2,000 tokens and 16,384 tokens per GPU: 2 s and 0.1 GB per step at 2,048
rollouts, 24 s and 1.7 GB at 8,192, 108 s and 6.5 GB at 16,384, hence about half an hour and 100 GB at 65,536."""

FIXED_TOKENS = 32_768
"""Tokens of a pass with a fixed number of samples, if all have full length."""


@dataclass(frozen=True)
class Placement:
    """Nodes and GPUs of one run."""

    nodes: int
    """Machines."""
    gpus_per_node: int
    """GPUs per machine."""
    tensor_parallel: int
    """GPUs per vLLM engine."""

    @property
    def gpus(self) -> int:
        """GPUs in total, which is also the number of data-parallel trainer processes."""
        return self.nodes * self.gpus_per_node

    @property
    def engines(self) -> int:
        """Number of vLLM engines: together they use every GPU."""
        return self.gpus // self.tensor_parallel


def place(run: RunSpec, options: OpenRLHFOptions) -> tuple[Placement | None, tuple[Note, ...]]:
    """The placement of a run, or None with the notes that say why."""
    found = _nodes_and_gpus(run, options)
    if isinstance(found, Note):
        return None, (found,)
    nodes, gpus_per_node = found
    placement = Placement(nodes, gpus_per_node, options.tensor_parallel)
    notes = checks.tensor_parallel_does_not_fit(placement.tensor_parallel, gpus_per_node)
    notes += _batch_notes(run, options, placement)
    return placement, tuple(notes)


def _nodes_and_gpus(run: RunSpec, options: OpenRLHFOptions) -> tuple[int, int] | Note:
    """Machines and GPUs per machine from the options and `hardware.gpus`, or why they contradict each other."""
    if options.gpus_per_node is not None:
        return _as_stated(run, options.nodes, options.gpus_per_node)
    several = checks.several_gpu_counts(run, "Name it with the options nodes and gpus_per_node.")
    if several:
        return several[0]
    counts = run.hardware.gpu_counts
    total = counts[0]
    nodes = checks.nodes_for(total, options.nodes)
    return nodes if isinstance(nodes, Note) else (nodes, total // nodes)


def _as_stated(run: RunSpec, nodes: int | None, gpus_per_node: int) -> tuple[int, int] | Note:
    """The placement that the options state, where `hardware.gpus` does not say something else."""
    counts = run.hardware.gpu_counts
    stated = counts != (1,)  # 1 is the default, so that the options may be the only place that says more
    if nodes is None:
        nodes = counts[0] // gpus_per_node if stated and len(counts) == 1 and counts[0] % gpus_per_node == 0 else 1
    total = nodes * gpus_per_node
    if not stated or total in counts:
        return nodes, gpus_per_node
    message = (
        f"options nodes = {nodes} and gpus_per_node = {gpus_per_node} give {total} GPUs; hardware.gpus says "
        f"{', '.join(map(str, counts))}. Change one of them."
    )
    return Note("placement-contradicts-hardware", "refuse", message, {"options": total, "hardware": list(counts)})


def packs(run: RunSpec, options: OpenRLHFOptions) -> bool:
    """Whether micro-batches are packed by tokens instead of holding a fixed number of samples."""
    if options.dynamic_batch is not None:
        return options.dynamic_batch
    fixed = options.micro_train_batch is not None or options.micro_rollout_batch is not None
    return not fixed and run.recipe.updates_per_batch == 1 and run.rollouts_per_batch <= LARGEST_PACKED_BATCH


def fixed_batches(run: RunSpec, options: OpenRLHFOptions, gpus: int) -> tuple[int, int]:
    """Samples per GPU in a pass of the update, and of the log-probabilities, if they are not packed by tokens.

    Without an option as many as fit `FIXED_TOKENS` at full length and share the work of a GPU equally; they are packed
    without padding, so that short samples cost what they hold.
    """
    share = run.rollouts_per_batch // run.recipe.updates_per_batch // gpus
    longest = run.recipe.max_prompt_tokens + run.recipe.max_response_tokens
    most = max(1, FIXED_TOKENS // longest)
    fitting = max((size for size in range(1, most + 1) if share and share % size == 0), default=1)
    return options.micro_train_batch or fitting, options.micro_rollout_batch or fitting


def _batch_notes(run: RunSpec, options: OpenRLHFOptions, placement: Placement) -> list[Note]:
    """Refusals of batches that give ranks unequal work, for which the others would wait forever."""
    packed = packs(run, options)
    notes = [*_packing_notes(run, packed), *_unused_options(options, packed)]
    parts = {"GPUs": placement.gpus}
    if not packed:
        train, rollout = fixed_batches(run, options, placement.gpus)
        parts = {
            "GPUs x micro_train_batch": placement.gpus * train,
            "GPUs x micro_rollout_batch": placement.gpus * rollout,
        }
    for what, divisor in parts.items():
        notes += checks.batch_not_divisible(run, divisor, what)
    return notes


def _packing_notes(run: RunSpec, packed: bool) -> list[Note]:
    """Notes on packing this batch by tokens."""
    if not packed:
        return []
    batch, updates = run.rollouts_per_batch, run.recipe.updates_per_batch
    notes: list[Note] = []
    if updates > 1:
        message = (
            f"dynamic_batch assigns the samples of a batch to its {updates} updates by length, not at random, so the "
            "updates would see different lengths. Turn the option dynamic_batch off."
        )
        notes.append(Note("updates-sorted-by-length", "refuse", message, {"updates_per_batch": updates}))
    if batch > LARGEST_PACKED_BATCH:
        message = (
            f"dynamic_batch with {batch} rollouts per batch: partitioning takes time and memory that grow with the "
            f"square of the batch (108 s and 6.5 GB per step at {LARGEST_PACKED_BATCH} samples of 2,000 tokens). "
            "Turn the option dynamic_batch off."
        )
        notes.append(Note("batch-too-large-to-pack", "refuse", message, {"rollouts_per_batch": batch}))
    elif batch >= LARGEST_PACKED_BATCH // 2:
        message = (
            f"packing {batch} rollouts by tokens costs up to two minutes of each update step on the CPU; the option "
            "dynamic_batch = false avoids it, at the price of less efficient passes over short samples."
        )
        notes.append(Note("slow-packing", "info", message, {"rollouts_per_batch": batch}))
    return notes


def _unused_options(options: OpenRLHFOptions, packed: bool) -> list[Note]:
    """Refusals of options that have no effect with this kind of micro-batches."""
    if packed:
        fixed = {"micro_train_batch": options.micro_train_batch, "micro_rollout_batch": options.micro_rollout_batch}
        unused = [name for name, value in fixed.items() if value is not None]
        advice = "while micro-batches are packed by tokens: turn dynamic_batch off, or set max_tokens_per_gpu instead"
    else:
        unused = ["max_tokens_per_gpu"] if options.max_tokens_per_gpu is not None else []
        advice = "while micro-batches hold a fixed number of samples: turn dynamic_batch on, or set micro_train_batch"
    return [Note("option-without-effect", "refuse", f"option {name} has no effect {advice}.") for name in unused]
