"""Small studies, on the simulator unless another backend is named."""

from __future__ import annotations

from isocompute_sdk.specs import Study


def make_study(**changes: object) -> Study:
    files = {"train": "t.jsonl", "validation": "v.jsonl", "reward": "r.py"}
    usual = {"name": "small", "model": "simulation", "data": files, "recipe": "easy", "backend": "simulator"}
    return Study.model_validate({**usual, **changes})
