"""The import contract: the engine runs without any terminal library, and commands without Textual."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

TERMINAL = ("textual", "rich", "questionary", "prompt_toolkit", "plotext", "tui")

_IMPORT_ALL = """
import importlib, json, pkgutil, sys
import gpt_tune
names = ["gpt_tune"] + [m.name for m in pkgutil.walk_packages(gpt_tune.__path__, "gpt_tune.")]
for name in names:
    importlib.import_module(name)
print(json.dumps({"imported": len(names), "loaded": sorted({m.split(".")[0] for m in sys.modules})}))
"""


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_every_engine_module_loads_no_terminal_library() -> None:
    answer = json.loads(_python(_IMPORT_ALL))
    assert answer["imported"] > 40
    assert not set(TERMINAL) & set(answer["loaded"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["plan", "--model", "gpt-1.3b", "--gpus", "8", "--gpu", "h200", "--json"],
        ["jobs", "--json"],
        ["models", "--json"],
    ],
    ids=lambda a: a[0],
)
def test_commands_never_load_textual(arguments: list[str], tmp_path: object) -> None:
    code = f"""
import os, sys
os.environ["HOME"] = {str(tmp_path)!r}
sys.argv = ["gpt-tune", *{arguments!r}]
from tui.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
heavy = sorted({{m.split(".")[0] for m in sys.modules}} & {{"textual", "rich", "questionary", "plotext"}})
print("\\nHEAVY", heavy)
"""
    assert _python(code).rstrip().endswith("HEAVY []")
