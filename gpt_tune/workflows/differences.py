"""Owns comparing the files of a job with those of an earlier run, apart from what differs in every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from gpt_tune.errors import UserError, shown
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles.schema import Profile
from gpt_tune.recipes.base import JobSpec, Rendered
from gpt_tune.schedulers.local_files import LocalFiles
from gpt_tune.workflows.edits import Names, names_of

Kind = Literal["same", "changed", "new", "gone"]
LARGEST_BYTES = 1024 * 1024
CONTEXT = 3  # unchanged lines shown around a change


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference. sign: " " both have it, "-" only the earlier run, "+" only this job, "…" lines left
    out. number: its line in this job's file, or None.
    """

    sign: str
    text: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One file beside the earlier run's. note: why there are no lines, where that is not plain."""

    path: str
    kind: Kind
    lines: tuple[DiffLine, ...] = ()
    note: str = ""

    @property
    def added(self) -> int:
        return sum(line.sign == "+" for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.sign == "-" for line in self.lines)


@dataclass(frozen=True, slots=True)
class Difference:
    """A job beside an earlier run: every file, those that differ first named."""

    run_id: str
    name: str
    files: tuple[FileDiff, ...]

    @property
    def changed(self) -> tuple[FileDiff, ...]:
        return tuple(f for f in self.files if f.kind != "same")

    def of(self, path: str) -> FileDiff | None:
        return next((f for f in self.files if f.path == path), None)


def last_run(ledger: Ledger, profile: Profile) -> RunRecord | None:
    """The newest run of a profile of this name; without a name, the newest of the same job and model."""
    from gpt_tune.workflows.records import profile_of

    for record in ledger.runs(limit=200):
        if record.recipe != profile.recipe or not record.profile:
            continue
        try:
            earlier = profile_of(record)
        except UserError:  # kept by a newer gpt-tune
            continue
        if earlier.name == profile.name and (profile.name or earlier.model.id == profile.model.id):
            return record
    return None


def beside_run(spec: JobSpec, rendered: Rendered, record: RunRecord) -> Difference:
    """The job's files beside those in the run folder of a run. UserError when that folder cannot be read."""
    read = _reader(record)
    theirs = Names(record.run_dir, record.token, record.run_id)
    here, files = names_of(spec), []
    if read(record.script) is None:
        raise UserError(
            f"The files of {record.run_id} are gone: there is no {record.script}.",
            "Compare with another run.",
        )
    for file in rendered.files:
        before = read(f"{record.run_dir}/{file.path}")
        files.append(_file_diff(file.path, before, file.content, theirs, here))
    mine = {f.path for f in rendered.files}
    for path in _listed(record):
        if path not in mine:
            files.append(FileDiff(path, "gone", note="only the earlier run has it"))
    return Difference(record.run_id, record.name, tuple(files))


def _file_diff(path: str, before: bytes | None, after: bytes, theirs: Names, here: Names) -> FileDiff:
    if before is None:
        return FileDiff(path, "new", note="the earlier run has no such file")
    try:
        old, new = theirs.into(here, before.decode("utf-8")), after.decode("utf-8")
    except UnicodeDecodeError:
        same = before == after
        return FileDiff(path, "same" if same else "changed", note="" if same else "not text: it differs")
    if old == new:
        return FileDiff(path, "same", note="as in the earlier run")
    return FileDiff(path, "changed", diff_lines(old, new))


def diff_lines(old: str, new: str) -> tuple[DiffLine, ...]:
    """The lines that differ, with a few around them; what is left out between is one `…` line."""
    a, b = old.split("\n"), new.split("\n")
    out: list[DiffLine] = []
    shown_to = 0  # lines of b told so far
    for group in SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(CONTEXT):
        skipped = group[0][3] - shown_to
        if skipped > 0:
            out.append(DiffLine("…", f"{skipped} line{'s' if skipped > 1 else ''} as before"))
        for tag, i, j, k, m in group:
            if tag == "equal":
                out += [DiffLine(" ", text, k + n + 1) for n, text in enumerate(b[k:m])]
            else:
                out += [DiffLine("-", text) for text in a[i:j]]
                out += [DiffLine("+", text, k + n + 1) for n, text in enumerate(b[k:m])]
            shown_to = m
    return tuple(out)


def _reader(record: RunRecord) -> Callable[[str], bytes | None]:
    """Reads a file of a run's folder, here or through ssh; None where there is none."""
    from gpt_tune.schedulers.remote_files import RemoteFiles
    from gpt_tune.workflows.remote_logs import connection_to

    connection = connection_to(record.cluster)
    files: Any = RemoteFiles(connection) if connection is not None else LocalFiles()

    def read(path: str) -> bytes | None:
        size = files.size(path)
        if size is None:
            return None
        if size > LARGEST_BYTES:
            raise UserError(f"{shown(path)} has {size} bytes: too many to compare.", "")
        content: bytes = files.read(path, 0, LARGEST_BYTES)
        return content

    return read


def _listed(record: RunRecord) -> list[str]:
    """Files at the top of a run folder that were generated, as far as names tell; logs and marks are none."""
    from gpt_tune.workflows.remote_logs import connection_to

    if connection_to(record.cluster) is not None:
        return []
    suffixes = (".sbatch", ".sh", ".json", ".toml", ".py", ".md", ".yaml")
    return [n for n in LocalFiles().list(record.run_dir) if n.endswith(suffixes) and not n.startswith(".")]


def as_text(difference: Difference) -> str:
    """The whole difference as text, unified by file."""
    out: list[str] = []
    for file in difference.files:
        if file.kind == "same":
            continue
        out.append(f"=== {file.path}: {file.kind}" + (f" ({file.note})" if file.note else ""))
        out += [f"{line.sign} {line.text}" for line in file.lines]
    return "\n".join([*out, ""]) if out else ""


def to_json(difference: Difference) -> dict[str, Any]:
    """The difference as data."""
    return {
        "run_id": difference.run_id,
        "name": difference.name,
        "files": [
            {
                "path": f.path,
                "kind": f.kind,
                "note": f.note or None,
                "added": f.added,
                "removed": f.removed,
                "lines": [{"sign": x.sign, "line": x.number, "text": x.text} for x in f.lines],
            }
            for f in difference.files
        ],
    }


def chosen_run(ledger: Ledger, profile: Profile, wanted: str) -> RunRecord:
    """The run to compare with: `last` is the profile's last one, anything else an ID. UserError when there is none."""
    from gpt_tune.jobs import find

    if wanted != "last":
        return find(wanted, ledger)
    record = last_run(ledger, profile)
    if record is None:
        raise UserError(
            "No earlier run was made from these choices.", "Name one: `gpt-tune jobs` lists them."
        )
    return record


def words(files: Sequence[FileDiff]) -> str:
    """Which files differ, in one line."""
    return ", ".join(
        f"{f.path} +{f.added} -{f.removed}" if f.kind == "changed" else f"{f.path} ({f.kind})" for f in files
    )
