"""Bounded least squares with lmfit: one place for its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isocompute_sdk.fitting.shapes import Array

MAX_EVALUATIONS = 500
"""Calls of the residual before a fit is given up as not converged. Data that the model can describe need up to
200; on data that it cannot, the optimiser would crawl along a flat valley for a minute and gain nothing."""


def minimise(residual: Callable[[Any], Array], parameters: Any) -> Any:
    """Minimise the sum of squares of `residual` over lmfit `parameters`, to the last digits."""
    import lmfit

    # With a parameter on its bound the covariance can be singular, and lmfit then takes roots of negative
    # numbers. No standard error is reported in that case, so the warning would say nothing.
    with np.errstate(all="ignore"):
        return lmfit.minimize(
            residual,
            parameters,
            method="least_squares",
            max_nfev=MAX_EVALUATIONS,
            xtol=1e-12,
            ftol=1e-12,
            gtol=1e-12,
        )
