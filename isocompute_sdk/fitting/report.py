"""Fits as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.fitting.allocation import AllocationLaw

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits


def summarise(fits: Fits) -> str:
    """Passport (its backtest first), laws, hand-overs, curves and notes, one line each."""
    origin = fits.source or f"{len(fits.curves)} configurations"
    lines = [f"{fits.metric}, method {fits.method}, {origin}" + (f", {fits.model}" if fits.model else "")]
    lines += [] if fits.passport is None else [f"  {line}" for line in fits.passport.lines()]
    lines += [f"  {describe_law(name, law)}" for name, law in fits.laws.items()]
    lines += [f"  no law {name}: {reason}" for name, reason in fits.unsupported.items()]
    if fits.curves:
        lines.append("  hand-overs: " + (describe_handovers(fits) or "none within the data"))
        lines += [
            f"  n = {c.group_size:<5} B_p = {'?' if c.problems_per_batch is None else c.problems_per_batch:<5}"
            f"plateau {c.plateau:.3f}{'' if c.plateau_identified else ' (not identified)'}, half at "
            f"C = {c.half_compute:.3g}, rms {c.rms:.4f}, {c.shape}, {c.status.value}"
            for c in fits.select()
        ]
    lines += [f"  [{note.severity}] {note.code}: {note.message}" for note in fits.notes]
    return "\n".join(lines)


def describe_law(name: str, law: AllocationLaw) -> str:
    """One line: parameters, plateau, status."""
    errors = {key: value for key, value in law.stderr.items() if value is not None}

    def show(parameter: str, digits: int) -> str:
        value = f"{getattr(law, parameter):.{digits}f}"
        return value + (f" +- {errors[parameter]:.{digits}f}" if parameter in errors else "")

    return (
        f"{name}: L = {show('L', 2)}, k = {show('k', 4 if law.x == 'update_steps' else 2)}, "
        f"midpoint {show('midpoint', 2)} ({law.x}), b = {show('b', 2)}; "
        f"tends to {law.saturation:.0f}; {law.status.value}"
    )


def describe_handovers(fits: Fits) -> str:
    """Budgets at which the best configuration changes, in one line; empty where there are none."""
    many = len(fits.problems_per_batch) > 1

    def one(n: int, bp: int | None) -> str:
        return f"{n} (B_p {bp})" if many else str(n)

    return ", ".join(
        f"{one(h.from_group_size, h.from_problems_per_batch)} -> {one(h.to_group_size, h.to_problems_per_batch)} "
        f"at {h.compute:.4g}"
        for h in fits.handovers()
    )
