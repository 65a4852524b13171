"""Owns working out whole-number arithmetic of `$(( ))` from known values."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LONGEST = 300
_NAME = re.compile(r"\$\{([A-Za-z_]\w*)(?::?[-=]([0-9]+))?\}|\$?([A-Za-z_]\w*)")


def evaluate(source: str, lookup: Callable[[str], str | None]) -> int | None:
    """The value of an expression, or None when a name in it is not known or the form is another one."""
    if len(source) > _LONGEST:
        return None
    unknown = False

    def number(match: re.Match[str]) -> str:
        nonlocal unknown
        found = lookup(match.group(1) or match.group(3)) or match.group(2)
        if found is None or not re.fullmatch(r"-?[0-9]{1,18}", found.strip()):
            unknown = True
            return "0"
        return f"({int(found)})"

    text = _NAME.sub(number, source).replace('"', "")
    text = re.sub(r"(?<![/])/(?![/])", "//", text)
    if unknown:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        action = _OPERATORS.get(type(node.op))
        if left is None or right is None or action is None:
            return None
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and right == 0:
            return None
        return action(left, right)
    return None
