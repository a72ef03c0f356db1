"""Checks of what GPUs share, for backends whose runs take several: batches, engines and nodes."""

from __future__ import annotations

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec

USUAL_NODE = 8
"""GPUs on a node where nothing is said about it."""


def nodes_for(gpus: int, stated: int | None) -> int | Note:
    """Machines that `gpus` GPUs are on, or `gpus-do-not-fill-nodes` where these would not be equal.

    Args:
        gpus: all of them.
        stated: the option `nodes`; None for one machine up to 8 GPUs, else as many as give 8 each.
    """
    whole = gpus if gpus < USUAL_NODE else USUAL_NODE
    if stated is None and gpus % whole == 0:
        return gpus // whole
    if stated is not None and gpus % stated == 0:
        return stated
    into = f"nodes of {USUAL_NODE}" if stated is None else f"{stated} equal nodes"
    message = f"{gpus} GPUs do not fill {into}. Set the option nodes to a divisor of {gpus}."
    return Note("gpus-do-not-fill-nodes", "refuse", message, {"gpus": gpus, "nodes": stated})


def several_gpu_counts(run: RunSpec, advice: str = "Name one number of GPUs.") -> list[Note]:
    """That a script is for one number of GPUs: `several-gpu-counts` where `hardware.gpus` lists more."""
    counts = run.hardware.gpu_counts
    if len(counts) == 1:
        return []
    message = f"hardware.gpus lists {', '.join(map(str, counts))}; a script is for one of them. {advice}"
    return [Note("several-gpu-counts", "refuse", message, {"hardware": list(counts)})]


def batch_not_divisible(run: RunSpec, divisor: int, what: str = "GPUs") -> list[Note]:
    """`batch-not-divisible` where the rollouts of an update are not a multiple of what shares them.

    Args:
        run: the run; a batch is cut into `updates_per_batch` updates.
        divisor: how many take an equal share of an update.
        what: what they are, such as "GPUs x micro_train_batch".
    """
    updates = run.recipe.updates_per_batch
    rollouts = run.rollouts_per_batch // updates
    rest = rollouts % divisor
    if rest == 0:
        return []
    share = f" / {updates} updates" if updates > 1 else ""
    message = (
        f"{rollouts} rollouts per update ({run.group_size} per problem x {run.problems_per_batch} problems{share}) are "
        f"not a multiple of {divisor} ({what}): the GPUs would get unequal work and wait for each other. Nearest "
        f"multiples: {max(rollouts - rest, divisor)} and {rollouts - rest + divisor}."
    )
    return [Note("batch-not-divisible", "refuse", message, {"divisor": divisor, "rest": rest})]


def tensor_parallel_does_not_fit(tensor_parallel: int, gpus_per_node: int) -> list[Note]:
    """`tensor-parallel-does-not-fit` where engines of that many GPUs do not fill a node."""
    if gpus_per_node % tensor_parallel == 0:
        return []
    message = (
        f"option tensor_parallel is {tensor_parallel}, which does not divide the {gpus_per_node} GPUs of a node: "
        "engines would not use every GPU, or would span two nodes. Use a divisor."
    )
    return [Note("tensor-parallel-does-not-fit", "refuse", message)]


def several_nodes(nodes: int, gpus_per_node: int) -> list[Note]:
    """`several-nodes`: what every node of a Ray cluster needs; nothing for one node."""
    if nodes == 1:
        return []
    message = (
        f"{nodes} nodes with {gpus_per_node} GPUs each: start Ray on all of them first, run the script on one with "
        "RAY_ADDRESS set, and keep data and output_dir on a file system that all of them share."
    )
    return [Note("several-nodes", "info", message, {"nodes": nodes})]
