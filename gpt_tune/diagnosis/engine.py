"""Owns a diagnosis: what was collected from the lines, what the steps show, and the conclusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpt_tune.diagnosis import cancelled, judged, stalls, steps, stopped, stragglers
from gpt_tune.diagnosis.collect import Collector, Hit
from gpt_tune.diagnosis.judged import Judgements
from gpt_tune.diagnosis.rank import Candidate, conclude
from gpt_tune.diagnosis.signatures import Signature, by_id, fill_in
from gpt_tune.diagnosis.types import Diagnosis, Finding, Severity
from gpt_tune.jobs.reasons import explain
from gpt_tune.logs.clean import split_lines
from gpt_tune.logs.file_ranks import places
from gpt_tune.logs.parse import read_blocks
from gpt_tune.logs.parser import LogParser

# The scheduler's word for a job's end, where the log itself says nothing about it.
_STATE_FINDINGS = {
    "OUT_OF_MEMORY": "F8", "TIMEOUT": "F72", "NODE_FAIL": "F74", "PREEMPTED": "F73", "CANCELLED": "F77",
}  # fmt: skip
# What a shell's exit code over 125 means.
_EXIT_CODES = {
    126: "the program could not be run", 127: "a program was not found", 132: "illegal instruction",
    134: "aborted, as NCCL and C++ do", 135: "bus error", 136: "arithmetic error",
    137: "SIGKILL, which almost always is the killer when host memory runs out", 139: "segmentation fault",
    143: "SIGTERM: told to end",
}  # fmt: skip
LAST_WORDS = 3  # lines shown when nothing better is known
SURVIVED_STEPS = 2  # that many new steps afterwards: the run went on
AGAIN_ITERATIONS = 2  # between two looks for stragglers
OVER_TIERS = frozenset({"remote", "signal", "cancelled"})


class Diagnoser:
    """Reads the lines that a parser reads; `conclude` may be called at any time."""

    def __init__(self, judgements: Judgements | None = None) -> None:
        """judgements: what the user said of findings, by id."""
        self._collector = Collector()
        self._done: tuple[tuple[object, ...], Diagnosis] | None = None
        self.judgements: Judgements = judgements or {}
        self._slow: tuple[int, tuple[Finding, ...]] = (-1, ())

    def place(self, files: Sequence[str]) -> None:
        """All files of the job, as far as they are known: who wrote them, by their names."""
        self._collector.places = places(files)

    def feed(
        self,
        lines: Sequence[str],
        source: str = "",
        first_line: int | None = None,
        transient: Iterable[int] = (),
    ) -> None:
        """Reads clean lines; first_line: the number of the first of them in its file."""
        self._collector.feed(lines, source, first_line, transient)

    def feed_block(self, block: bytes, source: str = "", first_line: int | None = None) -> None:
        """Reads whole raw lines."""
        self._collector.feed_block(block, source, first_line)

    def conclude(
        self,
        parser: LogParser | None = None,
        state: str = "UNKNOWN",
        stalled: bool = False,
        reason: str = "",
        exit_code: int | None = None,
    ) -> Diagnosis:
        """The diagnosis so far. state, reason and exit_code: the scheduler's. stalled: nothing moves any more."""
        collector = self._collector
        version = parser.best.version if parser is not None else 0
        said = tuple(self.judgements.values())
        key = (collector.lines, parser, version, state, stalled, reason, exit_code, said)
        if self._done is None or self._done[0] != key:
            collector.settle()
            self._done = key, self._concluded(parser, state, stalled, reason, exit_code)
        return self._done[1]

    def _concluded(
        self, parser: LogParser | None, state: str, stalled: bool, reason: str, exit_code: int | None
    ) -> Diagnosis:
        collector = self._collector
        has_steps = parser is not None and parser.best.last() is not None
        found = [c for hit in collector.hits.values() if (c := self._candidate(hit, parser)) is not None]
        if parser is not None:
            found += _from_steps(parser, collector)
            slow = [_pointed_at(f, collector.hits) for f in self.slow_ranks(parser)]
            found += [Candidate(f, "steps", "node", 1 << 60) for f in slow]
            found += stopped.early(parser, collector.hits, state)
        # An echo of a peer that died is no silence; being told to end is how a silent hang ends.
        said = any(c.finding.severity != "info" and (c.role != "echo" or c.tier == "remote") for c in found)
        if not has_steps and state in ("UNKNOWN", "RUNNING") and not said:
            found += self._from_stall(state, stalled)
        found = cancelled.sort_out(found, collector.hits, state)
        found += _from_state(state, found)
        found = cancelled.worded(found, state, reason)
        found, dismissed = judged.apply(found, self.judgements)
        if "F218" not in self.judgements:
            found += self._from_exit(state, exit_code, found)
        ended = parser is not None and _said_ended(parser)
        waiting = _waiting(reason) if state == "PENDING" else None
        result = conclude(found, state, has_steps, ended, stalled, waiting)
        return replace(result, findings=(*result.findings, *dismissed))

    def slow_ranks(self, parser: LogParser) -> tuple[Finding, ...]:
        """Stragglers, by the times that ranks printed themselves; judged anew every few iterations."""
        times = parser.rank_times
        step = AGAIN_ITERATIONS * max((len(k.by_writer) for k in times.kinds.values()), default=1)
        at, found = self._slow
        if at < 0 or not at <= times.version < at + step:
            found = tuple(stragglers.judge(times, parser.facts, parser.trainer))
            self._slow = times.version, found
        return found

    def _candidate(self, hit: Hit, parser: LogParser | None) -> Candidate | None:
        signature = hit.signature
        hits = self._collector.hits
        if signature.role == "context" or any(wanted not in hits for wanted in signature.wants):
            return None
        if signature.hosts > 1 and len(self._collector.hosts) < signature.hosts:
            return None
        for other in signature.covers:
            if other in hits:
                hit.groups = {**hits[other].groups, **hit.groups}
        finding = _finding(hit)
        if parser is not None and parser.steps_after(hit.source, hit.last_index) >= SURVIVED_STEPS:
            finding = _survived(finding, signature)
        covered = any(signature.id in other.signature.covers for other in hits.values())
        role = "echo" if covered and signature.role == "first" else signature.role
        return Candidate(finding, role, signature.tier, hit.order, hit.time, signature.hangs)

    def _from_stall(self, state: str, stalled: bool) -> list[Candidate]:
        """What the end of a log without steps looks like; while the job still may be starting, only once it stalls."""
        if state == "RUNNING" and not stalled:
            return []
        found = stalls.judge(self._collector)
        if found is None:
            return []
        identity, groups = found
        signature = by_id(identity)
        return [_plain(signature, groups, signature.severity)]

    def _from_exit(self, state: str, exit_code: int | None, found: Sequence[Candidate]) -> list[Candidate]:
        """A job that failed always gets a finding: its exit code and what it printed last."""
        failed = state == "FAILED" or (state == "UNKNOWN" and exit_code not in (None, 0))
        if not failed or any(c.finding.severity == "error" for c in found):
            return []
        last = [
            line for lines in self._collector.last_lines().values() for line in lines if line.text.strip()
        ]
        words = _EXIT_CODES.get(exit_code or 0, "")
        code = f"exit code {exit_code}" if exit_code else "no exit code known"
        text = f"The job failed ({code}{': ' if words else ''}{words}) and its log names no cause."
        excerpt = " / ".join(line.text.strip() for line in last[-LAST_WORDS:])[:600]
        fix = (
            f"Its last words: {excerpt}"
            if excerpt
            else "It printed nothing: look at the job script's own output."
        )
        number = last[-1].number if last else None
        finding = Finding("F218", "error", text, fix, line=number, excerpt=excerpt)
        return [Candidate(finding, "exception", "exception", 1 << 60)]


def _finding(hit: Hit) -> Finding:
    signature, groups = hit.signature, _shared_gpu(hit)
    identity = "F5" if groups is not hit.groups else signature.id
    text = fill_in(signature.text, groups)
    if identity == "F5":
        text = f"{text} Ranks {_listed(hit.ranks)} all used GPU 0."
    elif signature.id in ("F19", "F20") and len(hit.ranks) > 1:
        text = f"{text} Ranks {_listed(hit.ranks)} said so{_silent(hit.ranks)}."
    return Finding(
        identity,
        signature.severity,
        text,
        fill_in(signature.fix, groups),
        line=hit.number,
        rank=hit.rank,
        host=hit.host,
        source=hit.source,
        excerpt=hit.excerpt,
        count=hit.count,
        changes=dict(signature.changes),
        action=signature.action,
    )


def _shared_gpu(hit: Hit) -> dict[str, str]:
    """A copy of the groups when several ranks ran out of memory on one and the same GPU, which they must not share."""
    every = [hit.groups, *hit.more]
    if hit.signature.id in ("F1", "F2") and len(hit.ranks) > 1 and len(hit.hosts) <= 1:
        gpus = {g.get("gpu") for g in every}
        if gpus == {"0"} and len(every) > 1:
            return dict(hit.groups)
    return hit.groups


def _listed(ranks: set[int]) -> str:
    shown = sorted(ranks)
    return ", ".join(map(str, shown[:8])) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")


def _silent(ranks: set[int]) -> str:
    """Ranks below the highest that printed nothing: look there first."""
    missing = [r for r in range(max(ranks) + 1) if r not in ranks]
    if not missing or len(missing) > 16:
        return ""
    return f"; rank {_listed(set(missing))} did not: look there first"


def _pointed_at(finding: Finding, hits: Mapping[str, Hit]) -> Finding:
    """Ranks that drift apart, with the one that the other ranks' complaints point to."""
    if finding.id != "F223" or finding.rank is not None:
        return finding
    for identity, why in (
        ("F270", "the straggler detector points"), ("F21", "the collectives point"), ("F250", "a barrier points"),
    ):  # fmt: skip
        hit = hits.get(identity)
        missing = hit.groups.get("missing", "").strip() if hit is not None else ""
        if missing.isascii() and missing.isdigit():
            return stragglers.named_by(finding, int(missing), why)
        if hit is not None and hit.rank is not None and len(hit.ranks) == 1:
            return stragglers.named_by(finding, hit.rank, why)
    waited = hits["F19"].ranks if "F19" in hits else set()
    silent = [r for r in range(max(waited, default=0) + 1) if r not in waited]
    if len(waited) > 1 and len(silent) == 1:
        return stragglers.named_by(finding, silent[0], "the timeouts of all others point")
    return finding


def _survived(finding: Finding, signature: Signature) -> Finding:
    """The run went on: no longer an error, and for some nothing but a note."""
    if signature.survivable or signature.tier in OVER_TIERS:
        severity: Severity = "info"
    else:
        severity = "warning" if finding.severity == "error" else finding.severity
    if severity == finding.severity:
        return finding
    return replace(finding, severity=severity, text=f"{finding.text} The run went on afterwards.")


def _waiting(reason: str) -> Finding:
    """Why a job waits, as a finding: a warning when it will not start by itself."""
    why = explain(reason)
    return Finding(why.id, "warning" if why.starts == "no" else "info", why.text, why.fix, excerpt=reason)


def _plain(
    signature: Signature, groups: dict[str, str], severity: Severity, order: int = 1 << 60
) -> Candidate:
    finding = Finding(
        signature.id,
        severity,
        fill_in(signature.text, groups),
        fill_in(signature.fix, groups),
        changes=dict(signature.changes),
        action=signature.action,
    )
    return Candidate(finding, signature.role, signature.tier, order, None, signature.hangs)


def _from_steps(parser: LogParser, collector: Collector) -> list[Candidate]:
    found = []
    for trouble in steps.judge(parser.best, collector.overflows):
        signature = by_id(trouble.id)
        severity: Severity = "warning" if trouble.over else signature.severity
        candidate = _plain(signature, trouble.groups, severity)
        at = trouble.groups.get("iteration")
        iteration = int(at) if at is not None and at.isdigit() else None
        found.append(replace(candidate, finding=replace(candidate.finding, iteration=iteration)))
    return found


def _from_state(state: str, found: Sequence[Candidate]) -> list[Candidate]:
    """What only the scheduler says. An error in the log explains an end better than its state does."""
    identity = _STATE_FINDINGS.get(state)
    if identity is None or any(c.finding.id == identity for c in found):
        return []
    if identity in ("F77", "F74") and any(c.finding.severity == "error" for c in found):
        return []
    return [_plain(by_id(identity), {}, by_id(identity).severity)]


def _said_ended(parser: LogParser) -> bool:
    """Whether the trainer said that it was done, or printed its last iteration."""
    last = parser.best.last()
    if last is not None and last.total_iterations is not None and last.iteration >= last.total_iterations:
        return True
    kinds = [event.kind for event in parser.events if event.kind in ("start", "ended")]
    return bool(kinds) and kinds[-1] == "ended"


def diagnose_lines(lines: Sequence[str], source: str = "") -> Diagnosis:
    """The diagnosis of lines of one log."""
    clean, _ = split_lines("\n".join(lines).encode("utf-8", "replace"))
    parser, diagnoser = LogParser(), Diagnoser()
    diagnoser.feed(clean, source, 1)
    parser.feed(clean, source)
    parser.finish()
    return diagnoser.conclude(parser)


def diagnose(
    paths: Sequence[str | Path],
    state: str = "UNKNOWN",
    reason: str = "",
    exit_code: int | None = None,
    judgements: Judgements | None = None,
) -> Diagnosis:
    """The diagnosis of the log files of one job. state, reason and exit_code: what the scheduler says of it.

    judgements: what the user said of findings, by id.

    Raises UserError for a file that cannot be read.
    """
    parser, diagnoser = LogParser(), Diagnoser(judgements)
    for reader in (parser, diagnoser):
        reader.place([str(path) for path in paths])
    for path in paths:
        source = str(path)
        for block in read_blocks(path):
            diagnoser.feed_block(block, source)
            parser.feed_block(block, source)
    parser.finish()
    return diagnoser.conclude(parser, state, reason=reason, exit_code=exit_code)
