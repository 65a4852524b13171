"""Owns reading the #SBATCH lines of a job script."""

from __future__ import annotations

import re
import shlex

_SHORT = {
    "J": "job-name", "o": "output", "e": "error", "p": "partition", "A": "account", "q": "qos", "t": "time",
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "D": "chdir", "w": "nodelist", "x": "exclude",
    "C": "constraint", "d": "dependency", "a": "array", "i": "input", "G": "gpus", "L": "licenses",
}  # fmt: skip
# Input variables whose name is not the option's.
_VARIABLES = {"timelimit": "time", "gpus": "gpus", "array_inx": "array", "acctg_freq": "acctg-freq"}


def options(script: bytes) -> dict[str, str]:
    """Long option names and values (\"\" for flags) of the #SBATCH lines, as sbatch reads them: the last wins."""
    found: dict[str, str] = {}
    for line in script.decode("utf-8", "replace").splitlines():
        if line.startswith("#SBATCH"):
            found.update(_one_line(line.removeprefix("#SBATCH")))
        elif line.strip() and not line.startswith("#"):
            break  # sbatch stops at the first command
    return found


def option_of_variable(name: str) -> str:
    """The long option that `SBATCH_X` sets."""
    word = name.removeprefix("SBATCH_").lower()
    return _VARIABLES.get(word, word.replace("_", "-"))


def _one_line(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # an unclosed quote: sbatch will say so
        return {}
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if match := re.fullmatch(r"--([\w-]+)(?:=(.*))?", word, re.DOTALL):
            name, value = match.groups()
        elif match := re.fullmatch(r"-(\w)=?(.*)", word, re.DOTALL):
            name, value = _SHORT.get(match.group(1), match.group(1)), match.group(2) or None
        else:
            continue
        if value is None and words and not words[0].startswith("-"):
            value = words.pop(0)
        found[name] = value or ""
    return found
