"""Importing stays light, and no module hides a public function."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys

import pytest

import isocompute_sdk as iso

HEAVY = {"scipy", "lmfit", "polars", "matplotlib", "torch", "vllm", "ray", "transformers", "pandas"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules in sys.modules after running `code` in a fresh interpreter."""
    listing = "print('\\n' + json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    probe = f"import sys, json\n{code}\nsys.stdout.flush()\n{listing}"
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_importing_public_specs_and_errors_loads_nothing_heavy() -> None:
    assert not loaded_by("import isocompute_sdk as iso; iso.Budget(rollouts=1000); iso.PlanError") & HEAVY


def test_help_loads_nothing_heavy() -> None:
    code = (
        "from isocompute_sdk.cli import main\n"
        "for words in ([], ['plan'], ['fit'], ['quickstart']):\n"
        "    sys.argv = ['isocompute', *words, '--help']\n"
        "    try:\n        main()\n    except SystemExit as stop:\n        assert not stop.code, stop.code"
    )
    assert not loaded_by(code) & {*HEAVY, "numpy"}


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in iso.__all__:
        assert getattr(iso, name) is not None
    assert set(iso.__all__) <= set(dir(iso))
    assert set(iso.__all__) == set(iso._HOME_OF)


def test_public_functions_survive_importing_every_submodule() -> None:
    for module in pkgutil.walk_packages(iso.__path__, "isocompute_sdk."):
        # Programs that scripts carry import each other as they lie in a run folder, not as modules of a package.
        if not module.name.startswith("isocompute_sdk.training.payload."):
            importlib.import_module(module.name)
    for name in ("fit", "published", "published_prior", "list_published", "avg_at_k", "best_at_k", "worst_at_k"):
        assert callable(getattr(iso, name)), name
    assert iso.published(iso.list_published()[0]).method == "published"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = iso.no_such_name
