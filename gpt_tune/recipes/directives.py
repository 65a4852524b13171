"""Owns reading the #SBATCH lines of a script somebody else wrote, so that they can be written anew."""

from __future__ import annotations

import re
import shlex

from gpt_tune.errors import UserError

_SHORT = {
    "J": "job-name", "o": "output", "e": "error", "p": "partition", "A": "account", "q": "qos", "t": "time",
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "D": "chdir", "w": "nodelist", "x": "exclude",
    "C": "constraint", "d": "dependency", "a": "array", "i": "input", "G": "gpus", "L": "licenses",
    "F": "nodefile", "B": "extra-node-info", "m": "distribution", "M": "clusters", "b": "begin",
    "k": "no-kill", "s": "oversubscribe", "H": "hold", "O": "overcommit", "S": "core-spec", "W": "wait",
}  # fmt: skip
# Options without a value: a word after them is not theirs.
_FLAGS = frozenset(
    {
        "hold",
        "overcommit",
        "requeue",
        "no-requeue",
        "contiguous",
        "spread-job",
        "reboot",
        "wait",
        "ignore-pbs",
    }
    | {"get-user-env", "parsable", "test-only", "quiet", "verbose", "use-min-nodes", "no-kill"}
)


def read(script: str) -> dict[str, str]:
    """Long option names and values ("" for flags) of the #SBATCH lines that sbatch would read; the last wins.

    sbatch stops at the first line that is neither empty nor a comment. UserError for an unclosed quote.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith("#SBATCH"):
            found.update(_one_line(line.removeprefix("#SBATCH"), number))
        elif line.strip() and not line.startswith("#"):
            break
    return found


def _one_line(text: str, number: int) -> dict[str, str]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise UserError(
            f"Line {number} of the script has an unclosed quote: #SBATCH{text[:60]}", "Close it."
        ) from error
    found: dict[str, str] = {}
    while words:
        name, value = _option(words.pop(0))
        if not name:
            continue
        if value is None and name not in _FLAGS and words and not words[0].startswith("-"):
            value = words.pop(0)
        found[name] = value or ""
    return found


def _option(word: str) -> tuple[str, str | None]:
    """Name and value of one word; an empty name for a word that is no option."""
    if match := re.fullmatch(r"--([\w-]+)(?:=(.*))?", word, re.DOTALL):
        return match.group(1), match.group(2)
    if match := re.fullmatch(r"-(\w)=?(.*)", word, re.DOTALL):
        return _SHORT.get(match.group(1), match.group(1)), match.group(2) or None
    return "", None


def whole(options: dict[str, str], name: str) -> int | None:
    """An option's number, the first of a range such as 2-4; None when it is absent or no number."""
    match = re.match(r"\d+", options.get(name, ""))
    return int(match.group()) if match else None


def gpus_per_node(options: dict[str, str]) -> int | None:
    """GPUs of each node that the options ask for, in any of Slurm's ways; None when they do not say."""
    per_node = options.get("gpus-per-node", "")
    if match := re.search(r"(\d+)$", per_node):
        return int(match.group(1))
    for request in options.get("gres", "").split(","):
        if match := re.fullmatch(r"(?:gres[:/])?gpu(?::[^:]+)??(?::(\d+))?(?:\(.*\))?", request):
            return int(match.group(1) or 1)
    nodes = whole(options, "nodes") or 1
    if match := re.search(r"(\d+)$", options.get("gpus", "")):
        return max(1, int(match.group(1)) // nodes)
    return None
