"""Owns telling what kind of file a path and its text are."""

from __future__ import annotations

import re
from pathlib import PurePath

SHELL, DOCKER, DEEPSPEED, REQUIREMENTS = "shell", "dockerfile", "deepspeed", "requirements"
MAKE, PYTHON, MARKDOWN = "makefile", "python", "markdown"

_SHELL_SUFFIXES = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".job", ".batch", ".sub", ".srun"})
_SHEBANG = re.compile(r"\s*#!.*\b(?:ba|da|k)?sh\b")
_OTHER_SHEBANG = re.compile(r"#!")
_SBATCH = re.compile(r"^[ \t]*#SBATCH\b", re.MULTILINE)
_DOCKER_NAME = re.compile(r"(?i)^(?:.*\.)?(?:dockerfile|containerfile)(?:[.-].*)?$")
_FROM = re.compile(r"(?im)^[ \t]*FROM[ \t]+\S")
_REQUIREMENTS_NAME = re.compile(r"(?i)^(?:.*requirements.*|constraints.*)\.(?:txt|in)$")
_DEEPSPEED_KEY = re.compile(
    r"\"(?:zero_optimization|train_micro_batch_size_per_gpu|train_batch_size|steps_per_print|zero_allow_untested_optimizer)\""
)
_PARSES_LOGS = re.compile(r"(?i)tflops|elapsed time per iteration|lm loss")


def kind_of(path: PurePath, text: str, named: bool) -> str | None:
    """The kind of a file, or None when it is nothing lint reads.

    named: the user gave this very path, so Python and Markdown are read whatever they hold.
    """
    name, suffix = path.name, path.suffix.lower()
    if suffix in (".j2", ".jinja", ".jinja2", ".tmpl", ".template"):
        return None
    if _DOCKER_NAME.match(name) and _FROM.search(text):
        return DOCKER
    if suffix in _SHELL_SUFFIXES:
        return SHELL if _shell_like(text) else None
    if name in ("Makefile", "makefile", "GNUmakefile") or suffix == ".mk":
        return MAKE
    if _REQUIREMENTS_NAME.match(name):
        return REQUIREMENTS
    if suffix == ".json":
        return DEEPSPEED if _DEEPSPEED_KEY.search(text) else None
    if suffix == ".py":
        return PYTHON if named or _PARSES_LOGS.search(text) else None
    if suffix in (".md", ".markdown"):
        return MARKDOWN if named or name.lower().startswith("readme") else None
    if _SHEBANG.match(text) or (_SBATCH.search(text) and not suffix):
        return SHELL
    return SHELL if suffix in (".txt", "") and _SBATCH.search(text) else None


def _shell_like(text: str) -> bool:
    """Whether a file with a shell's suffix holds shell: its shebang, if any, names one."""
    return _OTHER_SHEBANG.match(text) is None or _SHEBANG.match(text) is not None
