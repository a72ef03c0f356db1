"""What the hours and the money of a plan rest on, as coded notes."""

from __future__ import annotations

from collections.abc import Mapping

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Budget, Hardware, Throughput

FAR = 2.0
"""Batches this many times outside those that were timed are an extrapolation."""
LENGTHS_SEEN = 1 / 3
"""Share of the plan's compute up to which response lengths have to be known for its hours to hold."""
LONG_WAY_BELOW_KNEE = 0.5
"""Share of the largest speed below which a plan is told so."""


def speed(throughput: Throughput, budget: Budget, batch: int, rollouts: int) -> list[Note]:
    """What is known of seconds per step at this batch and this far into training."""
    seen = throughput.measured
    notes = _system_batch(throughput, batch) if budget.timed else []
    if seen is None or not budget.timed:
        return notes
    low, high = seen.rollouts_per_batch[0], seen.rollouts_per_batch[-1]
    if not seen.separates_batches:
        notes.append(
            Note(
                "throughput-near-one-batch",
                "warning",
                f"Seconds per step were measured at B = {low:,} to {high:,} only, less than 4x apart: only batches "
                "near them were considered, and none is traded against another. isocompute probe measures three.",
                {"rollouts_per_batch": list(seen.rollouts_per_batch)},
            )
        )
    elif not low / FAR <= batch <= high * FAR:
        notes.append(
            Note(
                "throughput-extrapolated",
                "warning",
                f"The plan's batch of {batch:,} rollouts lies outside those that were timed ({low:,} to {high:,}): its "
                "hours follow from a straight line drawn further. Time a few steps first.",
                {"rollouts_per_batch": batch, "measured": [low, high]},
            )
        )
    if seen.rollouts < LENGTHS_SEEN * rollouts:
        told = f"up to {seen.rollouts:,.0f} of {rollouts:,} rollouts" if seen.rollouts else "nowhere"
        notes.append(
            Note(
                "response-growth-unseen",
                "info",
                f"Response lengths were measured {told}: if they grow beyond what was seen, the run takes longer. "
                "Measure the throughput on the pilot's own logs.",
                {"seen": seen.rollouts, "rollouts": rollouts},
            )
        )
    return notes


def _system_batch(throughput: Throughput, batch: int) -> list[Note]:
    knee = throughput.system_batch_size
    share = throughput.speed_share(batch)
    if knee is None or share >= LONG_WAY_BELOW_KNEE:
        return []
    return [
        Note(
            "below-system-batch-size",
            "info",
            f"At B = {batch:,} rollouts per batch the hardware reaches {share:.0%} of its largest speed; the system "
            f"batch size, 80 % of it, is about {knee:,.0f}. The predicted reward is best here all the same.",
            {"rollouts_per_batch": batch, "speed_share": share, "system_batch_size": knee},
        )
    ]


def gpus(throughput: Throughput, hardware: Hardware, given: bool) -> list[Note]:
    """Hardware that the throughput knows nothing of."""
    counts = hardware.gpu_counts
    if not given or throughput.gpu_exponent is not None or counts == (throughput.gpus,):
        return []
    return [
        Note(
            "gpu-scaling-unknown",
            "info",
            f"The hardware offers {', '.join(map(str, counts))} GPUs, and the throughput is for {throughput.gpus}: "
            "time and money are those of the latter. Add how speed grows with GPUs to the throughput (--gpu-exponent).",
            {"gpus": list(counts), "throughput_gpus": throughput.gpus},
        )
    ]


def evaluation(parts: Mapping[str, Mapping[str, float]], share: float, *, counted: bool, timed: bool) -> list[Note]:
    """Evaluations that cost more than their share, or that no budget pays for."""
    unit = "gpu_hours" if "gpu_hours" in parts["training"] else "rollouts"
    cost = parts["evaluation"][unit] / parts["training"][unit]
    notes: list[Note] = []
    if cost > share * (1 + 1e-9):
        notes.append(
            Note(
                "evaluation-above-share",
                "warning",
                f"Evaluating only the base model and the last step costs {cost:.1%} of training, more than the "
                f"{share:.1%} allowed: take fewer problems or samples.",
                {"share": cost, "allowed": share},
            )
        )
    if timed and not counted:
        notes.append(
            Note(
                "evaluation-not-counted",
                "info",
                f"Hours and money are those of training; evaluations add about {cost:.1%}. State the "
                "evaluation (--evaluation 300x4) to count them.",
                {"share": cost},
            )
        )
    return notes
