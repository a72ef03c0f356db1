"""request.json of a veRL run."""

from __future__ import annotations

from isocompute_sdk.documents import Document
from isocompute_sdk.training.framework import REMEDY, Request

KIND = "verl-run"
REQUEST_DOCUMENT = Document(KIND, 1, Request, signed=False, remedy=REMEDY)
