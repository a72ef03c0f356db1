"""`isocompute list schema`: every file that people write or commands save has a schema, and the files meet it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from isocompute_sdk.cli.listing import DOCUMENTS, SCHEMAS, schema_of

Command = Callable[..., "subprocess.CompletedProcess[str]"]
OLD_NAMES = {"torch-run"}
"""Kinds that are read and no longer written."""


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_schema_is_one(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(kind))


def test_every_document_of_the_package_has_a_schema(repository: Path) -> None:
    sources = [path.read_text() for path in (repository / "isocompute_sdk").rglob("*.py") if path.stem != "documents"]
    declared = {kind for text in sources for kind in re.findall(r'^\w+ = Document\(\s*"([a-z-]+)"', text, re.MULTILINE)}
    assert len(declared) > 5
    served = {schema_of(kind)["properties"]["kind"]["const"] for kind in DOCUMENTS}
    assert declared - OLD_NAMES == served


def test_saved_plans_fits_and_audits_meet_their_schemas(isocompute: Command, tmp_path: Path) -> None:
    rows = [
        f"{n},32,{step},{0.3 + 0.05 * i + 0.01 * step:.3f}"
        for i, n in enumerate((8, 16, 32))
        for step in range(0, 30, 3)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["n,bp,step,avg@4", *rows]) + "\n")
    assert isocompute("fit", "runs.csv", "--draws", 40, "--output", "fits.json").returncode == 0
    assert isocompute("plan", "--fits", "fits.json", "--budget", "50k", "--output", "plan.json").returncode == 0
    assert isocompute("audit", "runs.csv", "--output", "audit.json").returncode == 0
    for kind in ("fits", "plan", "audit"):
        saved: dict[str, Any] = json.loads((tmp_path / f"{kind}.json").read_text())
        check = jsonschema.Draft202012Validator(schema_of(kind))
        assert [error.json_path for error in check.iter_errors(saved)] == []
        for damaged in ({**saved, "schema_version": "2"}, {**saved, "notes": 3}, {**saved, "unknown": 1}):
            assert not check.is_valid(damaged), kind
