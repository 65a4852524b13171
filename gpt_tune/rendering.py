"""Owns turning templates and finished values into files, with everything a user typed quoted or refused."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

import jinja2

from gpt_tune.errors import UserError
from gpt_tune.resources import data_dir

LOG_FOLDER = "logs"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")
_ASCII_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Slurm 22.05 refuses an option of 1500 characters ("parameter too long"); its limits differ by option.
_LONGEST_SBATCH = 1000


class Content(Protocol):
    """One file of a run folder (recipes.base.RenderedFile)."""

    @property
    def path(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def executable(self) -> bool: ...


class Writer(Protocol):
    """The part of a cluster's files that writing a run folder needs."""

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None: ...
    def make_dir(self, path: str, mode: int = 0o700) -> None: ...


def quote(value: object) -> str:
    """A value as one shell word on one line. UserError for what no argument can hold: NUL, a lone surrogate."""
    text = str(value)
    if "\0" in text:
        raise UserError(f"A value holds a NUL byte: {text[:40]!r}.", "Remove it.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f"A value is not valid Unicode: {text[:40]!r}.", "Type it again.") from error
    if not _ASCII_CONTROL.search(text):
        quoted = shlex.quote(text)
        # A bare comma is safe, but reads like a mistake inside an array.
        return f"'{text}'" if "," in text and quoted == text else quoted
    # $'...' keeps line breaks out of the script, where a line of text could pass for one of the script's own.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _ASCII_CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", escaped) + "'"


def single_line(value: str, what: str) -> str:
    """The value, unless it holds line breaks or control characters, which these places cannot carry."""
    if _CONTROL.search(value):
        raise UserError(
            f"{what} holds a line break or control character: {value[:60]!r}.", "Type it again on one line."
        )
    return value


def sbatch_option(name: str, value: object = None) -> str:
    """One `#SBATCH` option, quoted as sbatch reads it (double quotes, backslash escapes)."""
    if value is None:
        return f"--{name}"
    text = single_line(str(value), f"The value of --{name}")
    if len(text) > _LONGEST_SBATCH:
        raise UserError(
            f"The value of --{name} has {len(text)} characters; Slurm takes at most {_LONGEST_SBATCH}.",
            "Use a shorter one.",
        )
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", text):
        return f"--{name}={text}"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'--{name}="{escaped}"'


def run_folder(path: str) -> str:
    """The path of a run folder, unless Slurm's file-name patterns would change it."""
    single_line(path, "The run folder")
    if not path.startswith("/"):
        raise UserError(f"The run folder {path!r} is not an absolute path.", "Start it with '/'.")
    if "%" in path or "\\" in path:
        raise UserError(
            f"The run folder {path!r} holds '%' or a backslash, which Slurm replaces in log file names.",
            "Choose a folder without them.",
        )
    return path


def variable_name(name: str) -> str:
    """The name of an environment variable, unless the shell would not take it."""
    if not _VARIABLE.fullmatch(name):
        raise UserError(
            f"{name!r} is not a name for an environment variable.", "Use letters, digits and underscores."
        )
    return name


def slug(text: str, fallback: str) -> str:
    """A name that is safe in file names and job lists: letters, digits, dot, underscore, dash; at most 64."""
    safe = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:64].strip("-.")
    return safe or fallback


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # shell scripts and Markdown: every value passes `q`, `cell` or a check instead
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # "{#" is the shell's length of a variable
        comment_end_string="##}",
    )
    environment.filters["q"] = quote
    environment.filters["cell"] = markdown_cell
    return environment


def render(template: str, **values: Any) -> bytes:
    """A template with its values filled in. A name the template uses and nobody gave is an error."""
    return _environment().get_template(template).render(**values).encode("utf-8")


def shipped(path: str) -> bytes:
    """A file of `templates/` as it is."""
    return (data_dir("templates") / path).read_bytes()


def json_bytes(data: Any) -> bytes:
    """JSON as people read it."""
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def markdown_cell(value: object) -> str:
    """A value inside a Markdown table or sentence, where it cannot start anything of its own."""
    text = _CONTROL.sub(" ", str(value))
    return re.sub(r"([|`*_<>\[\]\\#])", r"\\\1", text)


def write(files: Writer, run_dir: str, contents: Iterable[Content], group: bool = False) -> None:
    """Put a run's files and its log folder where the job will look for them.

    Paths of `contents` are relative to run_dir. group: readable for the Unix group, else private.
    """
    folder_mode, file_mode = (0o770, 0o660) if group else (0o700, 0o600)
    contents = list(contents)
    folders = {run_dir, f"{run_dir}/{LOG_FOLDER}"}
    for content in contents:
        parts = content.path.split("/")[:-1]
        folders.update(f"{run_dir}/" + "/".join(parts[: i + 1]) for i in range(len(parts)))
    for folder in sorted(folders):
        files.make_dir(folder, folder_mode)
    for content in contents:
        executable = (0o110 if group else 0o100) if content.executable else 0
        files.write(f"{run_dir}/{content.path}", content.content, file_mode | executable)
