"""What a script says without being run: the commands of a shell script, word by word, and a trainer's configuration.

The words are those that bash would pass. Variables, defaults such as `${N:-8}`, arrays and whole-number arithmetic are
filled in, as for a script that is started without arguments and in an empty environment. What only running the script
would tell stays as it is written, such as `$HOME` or `$(nproc)`. Functions and branches are read from top to bottom; of
a variable that is set again inside a branch or loop the value from outside holds.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_ASSIGNED = re.compile(r"(\w+)(\+?)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"(\w+)(?:\[[@*]\])?(?:(:?[-=?+])(.*))?", re.DOTALL)
_OPENS, _CLOSES = frozenset({"if", "for", "while", "until", "case"}), frozenset({"fi", "done", "esac"})
_SKIPPED = frozenset({"then", "else", "elif", "do", "{", "}", "!", "export", "declare", "local", "readonly", "exec"})
_PAIRS = {"(": ")", "{": "}"}
_DEEPEST = 20
CONFIGURATIONS = ("GRPOConfig", "UnslothGRPOConfig", "RLOOConfig")
_REASSIGN = (ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr, ast.comprehension)
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def commands(text: str) -> list[list[str]]:
    """The commands of a script, those inside `bash -c "..."` included, in order."""
    return _Reader().read(text)


@dataclass
class _Reader:
    variables: dict[str, str] = field(default_factory=dict[str, str])
    arrays: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    branches: int = 0
    depth: int = 0

    def read(self, text: str) -> list[list[str]]:
        found: list[list[str]] = []
        self.depth += 1
        for raw in _statements(text) if self.depth < _DEEPEST else ():
            words = self._command(raw)
            inner = next((i for i, word in enumerate(words[:-2]) if word.endswith("sh") and words[i + 1] == "-c"), None)
            if inner is not None:
                found += self.read(words[inner + 2])
            elif words:
                found.append(words)
        self.depth -= 1
        return found

    def _command(self, raw: list[str]) -> list[str]:
        """The words of one statement; its assignments are remembered."""
        first = 0
        while first < len(raw):
            word = raw[first]
            if word in _OPENS or word in _CLOSES:
                self.branches += 1 if word in _OPENS else -1
            elif (assigned := _ASSIGNED.fullmatch(word)) and _NAME.fullmatch(assigned[1]):
                self._assign(assigned[1], assigned[3], more=bool(assigned[2]))
            elif word not in _SKIPPED and not (first and raw[first - 1] in _SKIPPED and word.startswith("-")):
                break
            first += 1
        return [word for part in raw[first:] for word in self._words(part)]

    def _assign(self, name: str, value: str, *, more: bool) -> None:
        if self.branches > 0 and (name in self.variables or name in self.arrays) and not more:
            return
        if value.startswith("("):
            words = [word for line in _statements(value[1:-1]) for part in line for word in self._words(part)]
            self.arrays[name] = [*(self.arrays.get(name, []) if more else []), *words]
        else:
            self.variables[name] = (self.variables.get(name, "") if more else "") + " ".join(self._words(value))

    def _words(self, raw: str) -> list[str]:
        """One word as written -> the words that it becomes."""
        found: list[str] = []
        current: str | None = None
        i, quoted = 0, False
        while i < len(raw):
            char = raw[i]
            if char == "'" and not quoted:
                end = _after(raw.find("'", i + 1), raw)
                current, i = (current or "") + raw[i + 1 : end].removesuffix("'"), end
            elif char == '"':
                quoted, current, i = not quoted, current or "", i + 1
            elif char == "\\" and i + 1 < len(raw):
                kept = raw[i + 1] if not quoted or raw[i + 1] in '$`"\\' else raw[i : i + 2]
                current, i = (current or "") + kept, i + 2
            elif char == "$":
                end = _end_of_expansion(raw, i)
                values = self._expanded(raw[i:end], quoted)
                for number, value in enumerate(values):
                    if number:
                        found.append(current or "")
                        current = ""
                    current = (current or "") + value
                i = end
            else:
                current, i = (current or "") + char, i + 1
        # A quoted array without elements is no word at all.
        none = current is None or (not current and ("[@]" in raw or raw == '"$@"'))
        return found if none else [*found, current or ""]

    def _expanded(self, raw: str, quoted: bool) -> list[str]:
        """The words of `$x`, `${x...}` or `$((...))`; itself if the script does not say them."""
        if raw.startswith("$(("):
            name = r"\$?\{?\b([A-Za-z_]\w*)\b\}?"
            value = _arithmetic(re.sub(name, lambda found: self.variables.get(found[1], found[0]), raw[3:-2]))
            return [raw if value is None else str(value)]
        match = _BRACED.fullmatch(raw[2:-1] if raw.startswith("${") else raw[1:])
        if raw.startswith("$(") or match is None:
            return [] if raw in ("$@", "$*", "${@}", "${*}") else [raw]
        name, rule, default = match[1], match[2] or "", match[3] or ""
        if name in self.arrays:
            values = self.arrays[name] if "[" in raw else self.arrays[name][:1]
        elif name in self.variables and (self.variables[name] or ":" not in rule):
            values = [self.variables[name]]
        elif rule.endswith(("-", "=")):
            words = self._words(default)
            if rule.endswith("="):
                self.variables[name] = " ".join(words)
            return [" ".join(words)] if quoted else words
        else:
            return [] if rule.endswith("+") else [raw]
        return values if quoted else [word for value in values for word in value.split()]


def _statements(text: str) -> Iterator[list[str]]:
    """The words of every statement, as written, quotes included; here-documents and redirections are left out."""
    words: list[str] = []
    ends: list[str] = []
    current, i, redirected = "", 0, False
    while i <= len(text):
        char = text[i] if i < len(text) else "\n"
        if char == "\\" and text[i + 1 : i + 2] == "\n":
            i += 2
            continue
        if char in " \t\r\n;&|<>)" or (char == "(" and not current.endswith("=")):
            if current and not (char in "<>" and current.isdigit()):  # else the number of a file
                if not redirected:
                    words.append(current)
                redirected = False
            current = ""
            here = re.match(r"<<-?\s*(['\"]?)(\w+)\1", text[i:]) if char == "<" else None
            if here is not None:
                ends.append(here[2])
                i += here.end()
                continue
            if char in "<>":
                redirected = True
            elif char in "\n;|()" or (char == "&" and text[i + 1 : i + 2] != ">" and text[i - 1 : i] not in "<>"):
                if words:
                    yield words
                words, redirected = [], False
            i += 1
            while char == "\n" and ends:
                body = re.compile(rf"^\t*{re.escape(ends.pop(0))}$", re.MULTILINE).search(text, i)
                i = len(text) + 1 if body is None else body.end()
            continue
        if char == "#" and not current:
            i = text.find("\n", i) if "\n" in text[i:] else len(text)
            continue
        end = _end_of_part(text, i, current)
        current, i = current + text[i:end], end


def _end_of_part(text: str, i: int, before: str) -> int:
    char = text[i]
    if char == "'":
        return _after(text.find("'", i + 1), text)
    if char == '"':
        return _end_of_quotes(text, i)
    if char == "$":
        return _end_of_expansion(text, i)
    if char == "(" and before.endswith("="):
        return _end_of_brackets(text, i)
    return min(i + (2 if char == "\\" else 1), len(text))


def _end_of_quotes(text: str, i: int) -> int:
    i += 1
    while i < len(text) and text[i] != '"':
        i = i + 2 if text[i] == "\\" else _end_of_expansion(text, i) if text[i] == "$" else i + 1
    return min(i + 1, len(text))


def _end_of_expansion(text: str, i: int) -> int:
    following = text[i + 1 : i + 2]
    if following in _PAIRS and following:
        return _end_of_brackets(text, i + 1)
    name = _NAME.match(text, i + 1)
    return name.end() if name else min(i + (2 if following in "@*#?!$0123456789" else 1), len(text))


def _end_of_brackets(text: str, i: int) -> int:
    opening, closing, depth = text[i], _PAIRS[text[i]], 0
    while i < len(text):
        char = text[i]
        if char == "'":
            i = _after(text.find("'", i + 1), text)
            continue
        if char == '"':
            i = _end_of_quotes(text, i)
            continue
        if char == "#" and opening == "(" and text[i - 1] in " \t\n(":
            i = _after(text.find("\n", i), text)
            continue
        depth += (char == opening) - (char == closing)
        i += 2 if char == "\\" else 1
        if depth == 0:
            return min(i, len(text))
    return len(text)


def _after(found: int, text: str) -> int:
    return len(text) if found < 0 else found + 1


def _arithmetic(text: str) -> int | None:
    """The value of whole-number arithmetic; None for anything else."""
    try:
        value = _constant(ast.parse(text.strip().replace("/", "//"), mode="eval").body, {})
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, int) else None


def configuration_in(text: str) -> dict[str, Any]:
    """Constant arguments of the call that makes a trainer's configuration in a Python program.

    Empty if the text is no Python, or makes no configuration or several.
    """
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
