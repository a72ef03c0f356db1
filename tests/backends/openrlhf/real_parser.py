"""The parser of the real OpenRLHF 0.11.2, taken from its wheel and run without any of its dependencies."""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import sys
import types
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

VERSION = "0.11.2"
ROOT = f"openrlhf-{VERSION}.data/purelib/openrlhf"


@dataclass(frozen=True)
class Parsed:
    """What the real program would train with."""

    args: Any
    flat: dict[str, Any]
    printed: str


class RealParser:
    """The `__main__` block of cli/train_ppo_ray.py without its last statement, `train(args)`."""

    def __init__(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            self.source = {
                name.removeprefix(f"{ROOT}/"): archive.read(name).decode()
                for name in archive.namelist()
                if name.startswith(f"{ROOT}/") and name.endswith(".py")
            }
        block = main_block(self.source["cli/train_ppo_ray.py"])
        assert ast.unparse(block[-1]) == "train(args)"
        self.program = compile(ast.Module(block[:-1], type_ignores=[]), "train_ppo_ray.py", "exec")
        self.policy_loss_checks = policy_loss_checks(self.source["models/loss.py"])
        config = types.ModuleType("openrlhf.utils.config")
        exec(self.source["utils/config.py"], config.__dict__)
        packages = {name: types.ModuleType(name) for name in ("openrlhf", "openrlhf.utils")}
        self.modules = {**packages, config.__name__: config}

    def parse(self, arguments: list[str]) -> Parsed:
        """Parse and check as the real program does.

        Raises:
            ValueError: the parser refuses an argument (its own message).
            AssertionError: a check after parsing fails.
        """
        printed = io.StringIO()
        namespace: dict[str, Any] = {"argparse": argparse, "datetime": _datetime(), "os": os, "__name__": "__main__"}
        with (
            mock.patch.object(sys, "argv", ["train_ppo_ray.py", *arguments]),
            mock.patch.dict(sys.modules, self.modules),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            try:
                exec(self.program, namespace)
            except SystemExit as stop:
                raise ValueError(printed.getvalue()) from stop
        args = namespace["args"]
        self.policy_loss_checks(
            **{f"is_correction_{key}": getattr(args.algo.advantage, f"is_correction_{key}") for key in CORRECTION},
            dual_clip=args.actor.dual_clip,
        )
        return Parsed(args, flattened(args), printed.getvalue())

    def flag_names(self) -> frozenset[str]:
        """Every flag the parser defines, in full."""
        calls = [
            node for node in ast.walk(ast.parse(self.source["cli/train_ppo_ray.py"])) if isinstance(node, ast.Call)
        ]
        names: set[str] = set()
        for call in calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument" and call.args:
                written = ast.unparse(call.args[0]).removeprefix("f").strip("'\"")
                names |= {written.replace("{prefix}", prefix) for prefix in ("actor", "critic")}
        return frozenset(names)


CORRECTION = ("level", "mode", "gating", "threshold")


def main_block(source: str) -> list[ast.stmt]:
    """Statements under `if __name__ == "__main__"`."""
    (block,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
    ]
    return block.body


def function(source: str, name: str) -> str:
    """The text of one function at the top of a module, without the rest of it."""
    (found,) = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name]
    return ast.unparse(found)


def policy_loss_checks(source: str) -> Any:
    """The checks of `PolicyLoss.__init__` as a function: in the real program they run on the GPU only."""
    (loss,) = [n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "PolicyLoss"]
    (init,) = [n for n in loss.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    checks = [node for node in init.body if isinstance(node, ast.If)]
    assert sum("raise" in ast.unparse(check) for check in checks) >= 5
    init.body = [node for node in checks if "self." not in ast.unparse(node)]
    init.name, init.args.args = "check", init.args.args[1:]
    init.returns = None
    namespace: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([init], type_ignores=[])), "loss.py", "exec"), namespace)
    return namespace["check"]


def flattened(node: Any, prefix: str = "") -> dict[str, Any]:
    """Nested namespaces as one mapping with dotted names."""
    flat: dict[str, Any] = {}
    for key, value in vars(node).items():
        flat |= (
            flattened(value, f"{prefix}{key}.") if isinstance(value, types.SimpleNamespace) else {prefix + key: value}
        )
    return flat


def _datetime() -> Any:
    from datetime import datetime

    return datetime
