"""veRL's line on the console and its dump writer: functions of its wheel that need nothing but numpy."""

from __future__ import annotations

import ast
import json
import numbers
import os
import pprint
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from isocompute_verl.flags import VERSION
from tests.backends.wheels import cached_wheel


def _from_wheel(module: str, name: str, **known: Any) -> Callable[..., Any]:
    with zipfile.ZipFile(cached_wheel("verl", VERSION)) as wheel:
        tree = ast.parse(wheel.read(module).decode())
    (function,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    function.decorator_list = []
    exec(compile(ast.Module([function], type_ignores=[]), module, "exec"), known)
    return known[name]


class Writers:
    """veRL's line on the console and its dump writer; its file log in the form that orjson gives it."""

    def __init__(self) -> None:
        self.line = _from_wheel(
            "verl/utils/logger/aggregate_logger.py", "concat_dict_to_str", numbers=numbers, pprint=pprint
        )
        self.dump = _from_wheel(
            "verl/trainer/ppo/v1/trainer_base.py", "_write_generations", json=json, os=os, np=np, print=str
        )
