"""Owns how the queue is worded: rows of jobs, free GPUs, what could start. Pure; the engine has decided everything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from gpt_tune.schedulers.slurm_jobs import base_of
from gpt_tune.workflows.queue import offer_words, starts_in
from tui.states import ago, state_role
from tui.widgets.columns import Column
from tui.widgets.paint import Cell, Line
from tui.widgets.rows import Row
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.workflows.queue import Free, Group, MyJob, Offer

COLUMNS = (
    Column("state", least=8),
    Column("job"),
    Column("name", most=24),
    Column("GPUs", "right"),
    Column("where", drop=4),
    Column("when", drop=1),
    Column("by", drop=3),
    Column("why", grow=True, drop=2, least=12),
)


def queue_rows(groups: Sequence[Group], unfolded: Collection[str]) -> list[Row]:
    """One row a group; below an unfolded one its jobs."""
    rows: list[Row] = []
    for group in groups:
        if len(group.jobs) == 1:
            rows.append(_job_row(group.jobs[0]))
            continue
        rows.append(_group_row(group, group.key in unfolded))
        if group.key in unfolded:
            rows += [_job_row(job, "  ") for job in group.jobs]
    return rows


def _job_row(job: MyJob, indent: str = "") -> Row:
    status = job.status
    cells: tuple[Cell, ...] = (
        [(indent + status.state, state_role(status.state))],
        status.job_id,
        status.name,
        str(status.gpus) if status.gpus is not None else "-",
        status.partition,
        when_words(job),
        [("gpt-tune" if job.run_id else "elsewhere", "" if job.run_id else "muted")],
        [(job.why or "", "muted")],
    )
    return Row(status.job_id, cells)


def _group_row(group: Group, unfolded: bool) -> Row:
    first = group.jobs[0]
    sign, what = "▾" if unfolded else "▸", "sweep" if first.sweep else "array"
    cells: tuple[Cell, ...] = (
        [(f"{sign} {group.tasks} jobs", "accent")],
        group.key if first.sweep else base_of(first.status.job_id),
        first.status.name,
        str(group.gpus) if group.gpus else "-",
        first.status.partition,
        "",
        [(what, "muted")],
        [(group.words, "")],
    )
    return Row(group.key, cells)


def when_words(job: MyJob) -> str:
    """Since when it runs, or when it is expected to start."""
    status = job.status
    if status.state != "PENDING":
        return ago(status.started_at)
    if job.held:
        return "held"
    if status.expected_start:
        return f"in {starts_in(status.expected_start)}"
    return {"no": "never", "yes": "unknown"}.get(job.starts, "unknown")


def job_lines(group: Group) -> list[Line]:
    """The line under the cursor in whole sentences."""
    if len(group.jobs) > 1:
        return [[(f"{group.key}: ", "strong"), (f"{group.tasks} jobs, {group.words}. Enter shows each.", "")]]
    job = group.jobs[0]
    status = job.status
    line: list[tuple[str, str]] = [(f"{status.job_id}: ", "strong")]
    if status.state == "PENDING":
        role = {"no": "bad", "maybe": "warn"}.get(job.starts, "")
        line.append((f"{job.why or 'waits'}", role))
        line.append((f"  [{status.reason or 'None'}]", "muted"))
        if status.expected_start and not job.held:
            line.append((f"; Slurm expects it to start in {starts_in(status.expected_start)}", ""))
    else:
        line.append((f"{status.state.lower()} on {status.node_list or 'nodes not known yet'}", ""))
    lines: list[Line] = [line]
    if job.held:
        lines.append([("u ", "key"), ("releases it", "muted")])
    elif job.fix:
        lines.append([("→ ", "accent"), (job.fix, "accent")])
    if job.adoptable:
        lines.append([("a ", "key"), ("adopts it: it was not submitted here", "muted")])
    return lines


def free_lines(free: Sequence[Free]) -> list[Line]:
    """Free GPUs by type, most first."""
    if not free:
        return [[("free  ", "muted"), ("this cluster has no GPUs", "")]]
    line: list[tuple[str, str]] = [("free  ", "muted")]
    for f in free:
        kind = f"{f.free} of {f.total} {f.gpu or 'GPUs'}"
        line += [(kind, "good" if f.free else "warn"), (f" in {f.partition}", "muted")]
        line += [(f" ({plural(f.whole_nodes, 'whole node')})" if f.whole_nodes else "", "muted"), ("   ", "")]
    return [line[:-1]]


def offer_lines(offers: Sequence[Offer]) -> list[Line]:
    """When it could start as it is, then what could start sooner."""
    if not offers:
        return [[("Slurm does not say when it could start.", "muted")]]
    as_asked, *others = offers
    lines: list[Line] = [[("as it is  ", "muted"), (offer_words(as_asked), "good" if as_asked.now else "")]]
    lines += [[("instead   ", "muted"), (offer_words(o), "good" if o.now else "")] for o in others]
    if not others and not as_asked.now:
        lines.append([("instead   ", "muted"), ("nothing else that was asked about could start", "")])
    return lines
