"""Owns working out FLOPs formulas found in Python source with sample numbers, to compare them with the right one."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Sample numbers that no power of ten or two relates.
SAMPLE = {
    "parameters": 13.0e9,
    "tokens": 98304.0,
    "batch": 48.0,
    "seq": 2048.0,
    "hidden": 7168.0,
    "layers": 61.0,
    "vocab": 50257.0,
}
_ROLES = (
    ("layers", re.compile(r"^(?:n_?layers?|num_?layers?|layers?|l|nlayers?|n_layer|num_hidden_layers)$")),
    ("hidden", re.compile(r"^(?:h|d|hidden|hidden_?(?:size|dim)|d_?model|h_?size|n_embd|dim|emb(?:ed)?_?dim)$")),
    ("seq", re.compile(r"^(?:s|seq|seq_?len(?:gth)?|sequence_?length|ctx|context(?:_length)?|block_size|n_ctx)$")),
    ("vocab", re.compile(r"^(?:v|vocab|vocab_?size|padded_?vocab(?:_size)?|n_vocab)$")),
    ("batch", re.compile(r"^(?:b|gbs|batch|batch_?size|global_?batch(?:_?size)?|gb|bsz)$")),
    ("parameters", re.compile(r"^(?:n_?|num_?|total_?|model_?)?(?:params?|parameters?)(?:_?count)?$")),
    ("tokens", re.compile(r"^(?:n_?|num_?|total_?)?tokens?(?:_per_(?:step|iter\w*))?$")),
    ("ignored", re.compile(
        r"^(?:t|.*time.*|.*elapsed.*|.*gpus?.*|world(?:_?size)?|n|.*seconds.*|dt|.*_s|.*_ms|num_?devices|nodes|.*duration.*)$"
    )),
)  # fmt: skip
_DEEPEST = 60


def role_of(name: str) -> str | None:
    """What a variable of this name holds in such formulas."""
    if name == "T":
        return "seq"
    plain = name.lower().strip("_")
    return next((role for role, pattern in _ROLES if pattern.match(plain)), None)


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula worked out with the sample numbers. line: where its chain of assignments starts."""

    line: int
    value: float
    used: frozenset[str]


@dataclass(slots=True)
class _Scope:
    """Names assigned so far in one function. found: those that hold a formula, with where it starts."""

    expressions: dict[str, ast.expr] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    found: dict[str, Formula] = field(default_factory=dict)


class _Cannot(Exception):
    """The expression holds something that is no arithmetic."""


def formulas(tree: ast.Module) -> list[Formula]:
    """Every FLOPs formula at the end of its chain: `tflops = 3 * forward / time` counts, `forward = ...` does not."""
    found: list[Formula] = []
    for node in (tree, *_functions(tree)):
        scope = _Scope(parameters=_parameters(node))
        inner = {id(n) for f in _functions(node) if f is not node for n in ast.walk(f)}
        ends: dict[Formula, None] = {}
        for statement in _statements(node):
            if id(statement) in inner:
                continue
            for expression in _products(statement):
                _judge(expression, statement, scope, ends)
            _learn(statement, scope)
        found += ends
    return found


def _judge(expression: ast.expr, statement: ast.stmt, scope: _Scope, ends: dict[Formula, None]) -> None:
    """Note a formula, and forget those it is worked out from."""
    formula = _work_out(expression, scope)
    if formula is None:
        return
    for name in _names(expression) & scope.found.keys():
        ends.pop(scope.found[name], None)
        formula = Formula(min(formula.line, scope.found[name].line), formula.value, formula.used)
    ends[formula] = None
    for target in _targets(statement):
        scope.found[target.id] = formula


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _parameters(node: ast.AST) -> frozenset[str]:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return frozenset()
    return frozenset(a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))


def _statements(node: ast.AST) -> list[ast.stmt]:
    found = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _products(statement: ast.stmt) -> list[ast.expr]:
    """The outermost arithmetic of a statement, not of the statements inside it."""
    found: list[ast.expr] = []
    pending: list[ast.AST] = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, ast.stmt)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.BinOp):
            found.append(node)
        else:
            pending += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]
    return found


def _names(expression: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}


def _targets(statement: ast.stmt) -> list[ast.Name]:
    found = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [t for t in found if isinstance(t, ast.Name)]


def _learn(statement: ast.stmt, scope: _Scope) -> None:
    if (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
    ):
        scope.expressions[statement.targets[0].id] = statement.value
    elif (
        isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.value is not None
    ):
        scope.expressions[statement.target.id] = statement.value


def _work_out(expression: ast.expr, scope: _Scope) -> Formula | None:
    used: set[str] = set()
    try:
        value = _value(expression, scope, used, SAMPLE, _DEEPEST)
        # Work grows with the square of the width and with the sequence; memory and parameters do not do both.
        wider = _value(expression, scope, set(), {**SAMPLE, "hidden": 2 * SAMPLE["hidden"]}, _DEEPEST)
        longer = _value(expression, scope, set(), {**SAMPLE, "seq": 2 * SAMPLE["seq"]}, _DEEPEST)
    except (_Cannot, ZeroDivisionError, OverflowError):
        return None
    whole = (
        {"layers", "hidden", "seq"} <= used
        and value > 0
        and 2.5 < wider / value < 4.5
        and longer / value > 1.8
    )
    # The short form counts 6 FLOPs a parameter and token.
    short = (
        "parameters" in used
        and not {"layers", "hidden"} & used
        and ("tokens" in used or {"batch", "seq"} <= used)
    )
    if not (whole or short) or value <= 0:
        return None
    return Formula(expression.lineno, value, frozenset(used))


def _value(node: ast.expr, scope: _Scope, used: set[str], sample: Mapping[str, float], depth: int) -> float:
    if depth <= 0:
        raise _Cannot
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and not isinstance(node.value, bool)
    ):
        return float(node.value)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return _named(node, scope, used, sample, depth)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = _value(node.operand, scope, used, sample, depth - 1)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        left, right = (
            _value(node.left, scope, used, sample, depth - 1),
            _value(node.right, scope, used, sample, depth - 1),
        )
        return _combine(node.op, left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        if node.func.id in ("float", "int", "round"):
            return _value(node.args[0], scope, used, sample, depth - 1)
        if node.func.id == "pow" and len(node.args) == 2:
            left, right = (_value(a, scope, used, sample, depth - 1) for a in node.args)
            return _combine(ast.Pow(), left, right)
    raise _Cannot


def _combine(operator: ast.operator, left: float, right: float) -> float:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, (ast.Div, ast.FloorDiv)):
        return left / right
    if isinstance(operator, ast.Pow) and abs(right) <= 8:
        return float(left**right)
    raise _Cannot


def _named(node: ast.expr, scope: _Scope, used: set[str], sample: Mapping[str, float], depth: int) -> float:
    """A variable: worked out from its own assignment where that is arithmetic, else a sample of its role."""
    name = _plain_name(node)
    own = scope.expressions.get(name) if isinstance(node, ast.Name) else None
    role = role_of(name)
    if own is not None and name not in scope.parameters:
        if isinstance(own, ast.Constant) and role is not None and role in sample:
            used.add(role)
            return sample[role]
        before = set(used)
        try:
            return _value(own, scope, used, sample, depth - 1)
        except _Cannot:
            used.clear()
            used.update(before)
    if role is None:
        raise _Cannot
    used.add(role)
    return sample.get(role, 1.0)


def _plain_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return ""
