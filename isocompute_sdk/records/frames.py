"""Results as polars frames, for packages that do not handle tables themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from polars import DataFrame as Frame

    __all__ = ["Frame", "frame_of"]


def frame_of(columns: Mapping[str, Any]) -> Frame:
    """A polars frame with a row for each entry of the columns, which are broadcast and flattened."""
    import polars as pl

    arrays = {name: np.asarray(values) for name, values in columns.items()}
    same = np.broadcast_arrays(*arrays.values())
    # numpy has no missing numbers and texts: such columns are lists.
    rows = (array.ravel() for array in same)
    return pl.DataFrame(
        {
            name: array.tolist() if array.dtype == object else array.copy()
            for name, array in zip(arrays, rows, strict=True)
        }
    )
