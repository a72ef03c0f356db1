"""A trainer's configuration in a Python program: the constant arguments of the call that makes it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

CONFIGURATIONS = ("GRPOConfig", "UnslothGRPOConfig", "RLOOConfig")
_REASSIGN = (ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr, ast.comprehension)
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def configuration_in(text: str) -> dict[str, Any]:
    """Arguments by name; empty if the text is no Python, or makes no configuration or several."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError):
        return {}
    names = _constants(tree)
    calls = [
        {word.arg: value for word in node.keywords if word.arg and (value := _constant(word.value, names)) is not ...}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CONFIGURATIONS
    ]
    return calls[0] if len(calls) == 1 else {}


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names that a program assigns once, and a constant, -> their values."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, _REASSIGN) else []
        for one in (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) and one in targets else None
            assigned.setdefault(one.id, []).append(value or ast.Name("?"))
    constants: dict[str, Any] = {}
    for name, values in assigned.items():
        if len(values) == 1 and (value := _constant(values[0], constants)) is not ...:
            constants[name] = value
    return constants


def _constant(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression of constants, `names` and their products, sums and quotients; ... for any other."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, ...)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand, names)
        return -value if isinstance(value, int | float) else ...
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _constant(node.left, names), _constant(node.right, names)
        if isinstance(left, int | float) and isinstance(right, int | float) and right:
            return _ARITHMETIC[type(node.op)](left, right)
    return ...
