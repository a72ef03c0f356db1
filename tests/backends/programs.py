"""Programs of launch scripts as they run in a run folder: their neighbours are found by their bare names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from isocompute_sdk import run_folders
from isocompute_sdk.training import payload as shared

SHARED = Path(str(shared.__file__)).parent


def load(name: str, package: ModuleType = shared) -> ModuleType:
    """The program `name` of a payload; what it imports of the shared ones is loaded once for all."""
    folder = Path(str(package.__file__)).parent
    if package is shared and name in sys.modules:
        return sys.modules[name]
    # Backends have programs of the same name.
    label = name if package is shared else f"{package.__name__.replace('.', '_')}_{name}"
    spec = importlib.util.spec_from_file_location(label, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module  # dataclasses look themselves up there
    before = list(sys.path)
    # The journal is carried too, and lies with what reads it.
    sys.path[:0] = [str(SHARED), str(folder), str(Path(str(run_folders.__file__)).parent)]
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module
