"""What a surface rests on, as coded notes."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.notes import Note

FEWEST_LEVELS = 3
LITTLE_RISE = 0.5
"""Share of a curve's rise below which its end is mostly a guess."""


def about_runs(runs: Sequence[PreparedRun]) -> list[Note]:
    """Runs that were repaired, and how they were."""
    notes: list[Note] = []
    collapsed = [run for run in runs if run.fault == "collapse"]
    if collapsed:
        listed = "; ".join(f"{run.run_id} after C = {run.fault_compute:,.3g}" for run in collapsed[:5])
        notes.append(
            Note(
                "collapsed-run",
                "warning",
                f"{len(collapsed)} run(s) lost most of their gain and are used up to that point only: {listed}. Look "
                "at their entropy, KL and response length; a lower learning rate or a larger B_p may hold them.",
                {"runs": [run.run_id for run in collapsed]},
            )
        )
    decayed = [run for run in runs if run.fault == "decay"]
    if decayed:
        listed = "; ".join(f"{run.run_id} after C = {run.fault_compute:,.3g}" for run in decayed[:5])
        notes.append(
            Note(
                "decayed-run",
                "warning",
                f"{len(decayed)} run(s) fell again after a peak, which is held, since the best checkpoint is what is "
                f"kept: {listed}. On a small problem set this is overfitting: compare training and validation reward.",
                {"runs": [run.run_id for run in decayed]},
            )
        )
    if not any(len(run.base_reward) for run in runs):
        notes.append(
            Note(
                "base-reward-unmeasured",
                "info",
                "No run was evaluated at step 0: the base model's reward is inferred from the curves. One evaluation "
                "of the base model makes their start certain.",
            )
        )
    return notes


def about_fit(fits: Fits) -> list[Note]:
    """The passport's thresholds."""
    known = fits.passport
    assert known is not None, "a surface has a passport"
    notes: list[Note] = []
    if known.group_sizes == 1:
        notes.append(
            Note(
                "one-group-size",
                "warning",
                f"Only n = {fits.group_sizes[0]} was run: rewards are predicted along it, but which n is best cannot "
                "be seen. Run three more levels, 4x apart.",
                {"group_sizes": list(fits.group_sizes)},
            )
        )
    elif known.group_sizes < FEWEST_LEVELS:
        notes.append(
            Note(
                "few-group-sizes",
                "warning",
                f"{known.group_sizes} levels of n were run: between and beyond them the answer is mostly the prior's. "
                "Four levels, 4x apart, are a good pilot.",
                {"group_sizes": list(fits.group_sizes)},
            )
        )
    if known.seeds_per_cell < 1.5:
        notes.append(
            Note(
                "one-seed-per-cell",
                "info",
                f"{known.seeds_per_cell:.1f} run(s) per configuration: how much runs differ by chance is assumed, not "
                "measured. A second seed at two levels of n would measure it.",
                {"seeds_per_cell": known.seeds_per_cell},
            )
        )
    test = known.backtest
    if test is not None and test.coverage < 0.5 and test.runs > 1:
        notes.append(
            Note(
                "backtest-missed",
                "warning",
                f"With everything beyond C = {test.hidden_beyond:,.3g} hidden, {test.coverage:.0%} of {test.runs} runs "
                f"ended inside their 80 % interval (rms error {test.rms_error:.3f}): these runs do not go on as their "
                "beginnings say, and a plan beyond them deserves a check on the way.",
                {"coverage": test.coverage, "rms_error": test.rms_error},
            )
        )
    if known.rise_seen[1] < LITTLE_RISE:
        notes.append(
            Note(
                "rise-not-seen",
                "warning",
                f"At most {known.rise_seen[1]:.0%} of any curve's predicted rise was measured: how far rewards go, and "
                "with which n, is mostly the prior's word. Longer runs at two levels of n would show it.",
                {"rise_seen": list(known.rise_seen)},
            )
        )
    if known.group_sizes > 1 and known.gain_between_levels < known.noise:
        unseen = known.rise_seen[1] < LITTLE_RISE
        meaning = (
            "nothing tells them apart yet, and little of any rise was seen. Which n is best may still show."
            if unseen
            else "n hardly matters here. Take what suits the hardware."
        )
        notes.append(
            Note(
                "group-size-hardly-matters",
                "info",
                f"At the largest compute the levels of n differ by {known.gain_between_levels:.3f} of reward, less "
                f"than the noise of one evaluation ({known.noise:.3f}): {meaning}",
                {"gain": known.gain_between_levels, "noise": known.noise},
            )
        )
    return notes


def not_monotone() -> Note:
    """The best n is not a sigmoid of compute."""
    return Note(
        "not-monotone-in-compute",
        "warning",
        "The best n goes up and down with compute: no law is fitted, and plans ask the surface itself.",
    )
