"""The rules of the house that a linter does not know: every module says what it owns, and stays small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(p for folder in ("gpt_tune", "tui") for p in (ROOT / folder).rglob("*.py"))
LIMIT_LINES = 400


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_module_says_what_it_owns_and_is_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.name == "__init__.py" and not text.strip():
        return
    assert ast.get_docstring(ast.parse(text)), "the first line of a module says what it owns"
    assert len(text.splitlines()) <= LIMIT_LINES
