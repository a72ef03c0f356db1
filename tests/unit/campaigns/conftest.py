"""What tests of campaigns share."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.packages import note_installed

SOURCE = Path(__file__).parents[1] / "curve_backend.py"


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """The backend `curve`, installed as pip would leave it on disk."""
    place = tmp_path_factory.mktemp("site")
    shutil.copy(SOURCE, place / "curve_backend.py")
    note_installed(place, "curve", entries={"isocompute.backends": {"curve": "curve_backend:CurveBackend"}})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(place)
        patch.setenv("PYTHONPATH", str(place))
        yield place
    sys.modules.pop("curve_backend", None)
