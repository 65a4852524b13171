"""Owns a user's own changes to generated files: kept as changes, so that they outlive a new rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from gpt_tune.errors import UserError
from gpt_tune.recipes.base import JobSpec, Rendered, RenderedFile
from gpt_tune.schedulers import sbatch_lines

# Options of a job script on which the plan and its predictions stand.
_SIZE = ("nodes", "ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node", "partition", "time")
LARGEST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Names:
    """What differs between two renderings of the same choices: the run's own id, token and folder."""

    run_dir: str
    token: str
    run_id: str

    def into(self, other: Names, text: str) -> str:
        """The text with these names replaced by another run's."""
        pairs = ((self.run_dir, other.run_dir), (self.token, other.token), (self.run_id, other.run_id))
        for mine, theirs in pairs:
            text = text.replace(mine, theirs) if mine else text
        return text


@dataclass(frozen=True, slots=True)
class Edit:
    """One file as it was generated and as the user left it, for the run of these names."""

    path: str
    base: str
    text: str
    names: Names


@dataclass(frozen=True, slots=True)
class Edited:
    """Files with the user's changes in them. kept: paths that carry one. lost: (path, why) of those that could not."""

    rendered: Rendered
    kept: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()


def names_of(spec: JobSpec) -> Names:
    return Names(spec.run_dir, spec.token, spec.run_id)


def text_of(file: RenderedFile) -> str:
    """A file's text. UserError for one that is none."""
    try:
        return file.content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file.path} is not text, so it cannot be edited.", "") from error


def edited(spec: JobSpec, rendered: Rendered, path: str, text: str, base: str | None = None) -> Edit:
    """A change of one file. base: as it was generated, where it carries an earlier change already.

    UserError for a text that the file cannot become.
    """
    file = next((f for f in rendered.files if f.path == path), None)
    if file is None:
        raise UserError(f"The job has no file {path!r}.", "")
    if "\0" in text:
        raise UserError(
            f"{path} would hold a NUL byte, which no script or configuration may.", "Edit it again."
        )
    if len(text.encode("utf-8", "surrogateescape")) > LARGEST_BYTES:
        raise UserError(f"{path} would have more than 1 MB.", "Edit it again.")
    if path == rendered.script and not text.startswith("#!"):
        raise UserError(
            f"The first line of {path} must start with #!, or sbatch refuses it.",
            "Edit it again: make #!/bin/bash its first line.",
        )
    return Edit(path, text_of(file) if base is None else base, text, names_of(spec))


def apply(spec: JobSpec, rendered: Rendered, edits: Mapping[str, Edit]) -> Edited:
    """The files with every change in them that still fits. A change of lines that are generated differently now,
    because settings changed, is reported as lost and never half made.
    """
    here = names_of(spec)
    files: list[RenderedFile] = []
    kept: list[str] = []
    lost = [(path, "the job has no such file any more") for path in edits if path not in _paths(rendered)]
    for file in rendered.files:
        edit = edits.get(file.path)
        text = _merged(edit, here, file) if edit is not None else None
        if edit is not None and text is None:
            lost.append((file.path, "the lines that you changed are generated differently now"))
        if text is None:
            files.append(file)
        else:
            kept.append(file.path)
            files.append(replace(file, content=text.encode("utf-8", "surrogateescape")))
    changed = replace(rendered, files=tuple(files))
    return Edited(_with_logs(spec, changed) if rendered.script in kept else changed, tuple(kept), tuple(lost))


def _paths(rendered: Rendered) -> set[str]:
    return {f.path for f in rendered.files}


def _merged(edit: Edit, here: Names, file: RenderedFile) -> str | None:
    fresh = text_of(file)
    base, yours = edit.names.into(here, edit.base), edit.names.into(here, edit.text)
    return yours if base == fresh else merge(base, yours, fresh)


def merge(base: str, yours: str, fresh: str) -> str | None:
    """`fresh` with the changes from base to yours made in it; None where both changed the same or touching lines."""
    lines, own, new = (text.split("\n") for text in (base, yours, fresh))
    mine, theirs = _changes(lines, own), _changes(lines, new)
    if any(_touch(m, t) for m in mine for t in theirs):
        return None
    result: list[str] = []
    at = 0
    for start, end, text in sorted([*mine, *theirs], key=lambda change: change[:2]):
        result += [*lines[at:start], *text]
        at = end
    return "\n".join([*result, *lines[at:]])


Change = tuple[int, int, list[str]]  # lines start to end of the base become these


def _changes(base: Sequence[str], other: Sequence[str]) -> list[Change]:
    codes = SequenceMatcher(None, base, other, autojunk=False).get_opcodes()
    return [(i, j, list(other[k:m])) for tag, i, j, k, m in codes if tag != "equal"]


def _touch(a: Change, b: Change) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _with_logs(spec: JobSpec, rendered: Rendered) -> Rendered:
    """Logs where an edited script sends them."""
    asked = sbatch_lines.options(_script(rendered))
    named = [asked[name] for name in ("output", "error") if asked.get(name)]
    folder = asked.get("chdir") or spec.run_dir
    paths = [p if p.startswith("/") else f"{folder}/{p}" for p in named]
    return replace(rendered, log_paths=tuple(dict.fromkeys(paths)) or rendered.log_paths)


def warnings(before: Rendered, after: Rendered) -> tuple[str, ...]:
    """Sentences on what an edited job script changes that plan and prediction stand on."""
    old, new = sbatch_lines.options(_script(before)), sbatch_lines.options(_script(after))
    said = f"Your {after.script} says"
    found = [
        f"{said} {_option(name, new)} where the plan has {old.get(name) or 'none'}: "
        "cost and predictions are still the plan's."
        for name in _SIZE
        if old.get(name) != new.get(name)
    ]
    if old.get("comment") != new.get("comment"):
        found.append(
            f"Your {after.script} changes --comment, by which gpt-tune finds a job whose submission's answer got lost."
        )
    return tuple(found)


def _option(name: str, options: Mapping[str, str]) -> str:
    return f"--{name}={options[name]}" if name in options else f"no --{name}"


def _script(rendered: Rendered) -> bytes:
    return next((f.content for f in rendered.files if f.path == rendered.script), b"")
