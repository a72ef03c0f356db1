"""Tables of docs/laws.md: curve families, published constants, bounds of a fit."""

from __future__ import annotations

from collections.abc import Iterator

from generate.markdown import code, prose, table
from isocompute_sdk.fitting import allocation
from isocompute_sdk.fitting.paper.reward_curve import SHAPES, Shape
from isocompute_sdk.fitting.surface.surface import UNIT_SHAPES
from isocompute_sdk.laws.catalogue import CATALOGUE, MIDPOINTS, PUBLISHED_PLATEAUS, SLOPES, find_published

UNITS = {"log10_rollouts": "rollouts", "log10_tokens": "tokens", "update_steps": "update steps"}
"""Unit of the compute that a law is asked about."""
SYMBOLS = {"group_size": "n*(C)", "group_size_vs_steps": "n*(M)", "problems_per_batch_vs_steps": "B_p*(M)"}


def pages() -> Iterator[tuple[str, str]]:
    """Parts of docs/laws.md."""
    yield "parts/law_bounds.md", _bounds()
    yield "parts/curve_families.md", _families()
    yield "parts/unit_shapes.md", _shapes()
    yield "parts/published_laws.md", _published()
    yield "parts/prior.md", _prior()


def _bounds() -> str:
    rows = [
        ("L, b", f"0 to {allocation.L_MAX:g} octaves, more where the data are"),
        ("k", f"at most {allocation.STEEPEST:g} per decade of compute; for laws in M, over their range of M"),
        ("log10 of compute", f"below {allocation.LARGEST_LOG10:g}"),
    ]
    return table(("parameter", "bounds of a fit"), rows)


def _families() -> str:
    rows = [(code(one.name), code(one.formula), _free(one)) for one in SHAPES.values()]
    return table(("`curve=`", "formula", "free parameters"), rows)


def _free(shape: Shape) -> str:
    levels = "A" if shape.floor_is_base_reward else "plateau and rise"
    return f"{shape.n_free}: {levels}, {', '.join(code(one.name) for one in shape.parameters)}"


def _shapes() -> str:
    rows = [
        (code(name), prose((shape.__doc__ or "").removesuffix(", and its derivative.")))
        for name, shape in UNIT_SHAPES.items()
    ]
    return table(("shape", "S(z)"), rows)


def _published() -> str:
    rows: list[tuple[str, ...]] = []
    for name, entry in CATALOGUE.items():
        fits = find_published(name)
        for key, law in fits.laws.items():
            unit = UNITS[law.x]
            low, high = (f"{value:,}" for value in entry.group_sizes)
            rows.append(
                (
                    code(name),
                    f"{prose(SYMBOLS[key])}, in {unit}",
                    f"{law.L:.4g}",
                    f"{law.k:.4g}",
                    f"{law.midpoint:.4g}",
                    f"{law.b:.4g}",
                    f"{law.saturation:.0f}",
                    f"n {low} to {high}, B ≤ {entry.max_rollouts_per_batch:,}",
                    entry.figure,
                )
            )
    head = ("name", "law", "L", "k", "midpoint", "b", "tends to", "swept", "source")
    return table(head, rows, style="")


def _prior() -> str:
    plateaus = "; ".join(f"{one}: {plateau}" for one, plateau in PUBLISHED_PLATEAUS.items())
    rows = [
        ("upper plateau, n", plateaus),
        ("midpoint, log10 rollouts", ", ".join(f"{one:g}" for one in MIDPOINTS)),
        ("k per decade", ", ".join(f"{one:g}" for one in SLOPES)),
    ]
    return table(("parameter", "equally likely values"), rows)
