"""Owns a watched run as data and as plain text: the events of `watch --json` and the snapshot of `--once`."""

from __future__ import annotations

import math
import time
from typing import Any

from gpt_tune.diagnosis.types import Finding
from gpt_tune.logs.parse import step_json
from gpt_tune.logs.types import Step
from gpt_tune.schedulers.base import ENDED
from gpt_tune.workflows.watch import Watch, WatchUpdate

SCHEMA = "gpt-tune/watch/1"


def events(
    update: WatchUpdate, run_id: str | None, now: float | None = None, first: bool = False
) -> list[dict[str, Any]]:
    """What one poll brought, as the objects of `watch --json`. first: also say the state it was found in."""
    stamp = rfc3339(time.time() if now is None else now)

    def event(kind: str, **more: Any) -> dict[str, Any]:
        return {"schema": SCHEMA, "event": kind, "run_id": run_id, "time": stamp, **more}

    found: list[dict[str, Any]] = []
    if update.state_changed or first:
        status = update.status
        reason = status.reason if status is not None else ""
        found.append(event("state", state=update.state, reason=reason))
    found.extend(
        event("log", source=line.source, text=line.text) for line in update.lines if not line.transient
    )
    found.extend(event("step", **step_json(step)) for step in update.steps)
    found.extend(event("finding", **finding.to_json()) for finding in update.new_findings)
    if update.ended:
        status = update.status
        code = status.exit_code if status is not None else None
        found.append(event("end", state=update.state, exit_code=code, status=update.diagnosis.status))
    return found


def failed(update: WatchUpdate) -> bool:
    """Whether `watch` should exit 1: the job is over and did not complete."""
    return update.state in ENDED and update.state != "COMPLETED"


def snapshot_json(watch: Watch, update: WatchUpdate, now: float | None = None) -> dict[str, Any]:
    """The object of `watch --once --json`."""
    pace, summary = update.pace, update.summary
    root = update.diagnosis.root_cause
    return {
        "schema": SCHEMA,
        "event": "snapshot",
        "run_id": watch.run_id,
        "time": rfc3339(time.time() if now is None else now),
        "state": update.state,
        "reason": update.status.reason if update.status is not None else "",
        "step": step_json(update.last_step) if update.last_step is not None else None,
        "pace": {name: getattr(pace, name) for name in pace.__dataclass_fields__},
        "summary": {name: getattr(summary, name) for name in summary.__dataclass_fields__},
        "status": update.diagnosis.status,
        "root_cause": root.to_json() if root is not None else None,
        "findings": [finding.to_json() for finding in update.diagnosis.findings],
        "hang": update.hang.text if update.hang is not None else None,
        "history": update.history,
        "waiting": list(update.waiting),
        "log_paths": watch.sources,
    }


def snapshot_lines(watch: Watch, update: WatchUpdate, width: int = 80, log_lines: int = 5) -> list[str]:
    """The snapshot as plain text lines of at most `width` characters."""
    lines = [_headline(watch, update)]
    lines += _progress(update)
    lines += _speed(watch, update)
    lines += _training(update.last_step)
    if update.hang is not None:
        lines.append(f"HANG     {update.hang.text}")
    lines += _findings(update)
    lines += [f"waiting  {path} does not exist yet" for path in update.waiting]
    if update.history < 1.0:
        lines.append(f"history  {update.history:.0%} of the log read")
    recent = [line.text for line in watch.recent_lines() if not line.transient][-log_lines:]
    if recent and log_lines > 0:
        lines += ["log", *(f"  {text}" for text in recent)]
    return [_cut(line, width) for line in lines]


def _headline(watch: Watch, update: WatchUpdate) -> str:
    name = watch.run_id or (watch.sources[0] if watch.sources else "run")
    reason = update.status.reason if update.status is not None else ""
    words = [
        name,
        update.state,
        f"({reason})" if reason and reason != "None" else "",
        update.diagnosis.status,
    ]
    return "  ".join(word for word in words if word)


def _progress(update: WatchUpdate) -> list[str]:
    pace = update.pace
    if pace.iteration is None:
        return ["step     none yet"]
    total = f"/{pace.total_iterations}" if pace.total_iterations else ""
    parts = [f"step     {pace.iteration}{total}"]
    if pace.eta_seconds is not None:
        parts.append(f"ETA {duration(pace.eta_seconds)}")
    if pace.elapsed_seconds is not None:
        parts.append(f"elapsed {duration(pace.elapsed_seconds)}")
    if pace.gpu_hours is not None:
        whole = f" of {pace.gpu_hours_total:.1f}" if pace.gpu_hours_total is not None else ""
        parts.append(f"{pace.gpu_hours:.1f}{whole} GPU-hours{pace.gpu_hours_note}")
    return ["  ".join(parts)]


def _speed(watch: Watch, update: WatchUpdate) -> list[str]:
    pace, prediction = update.pace, watch.prediction
    lines = []
    if pace.recent_step_time_ms is not None:
        text = f"speed    {pace.recent_step_time_ms:,.1f} ms a step"
        if prediction is not None and prediction.step_time_ms:
            text += f" (predicted {prediction.step_time_ms:,.1f}"
            text += f", {pace.slower_than_predicted:+.0%})" if pace.slower_than_predicted is not None else ")"
        lines.append(text)
    if pace.recent_model_tflops is not None:
        mfu = f"  MFU {pace.mfu:.1%}" if pace.mfu is not None else ""
        lines.append(f"         {pace.recent_model_tflops:,.1f} model TFLOPS per GPU{mfu}")
    if pace.max_reserved_gib is not None:
        lines.append(f"memory   {pace.max_reserved_gib:.1f} GiB reserved at most")
    return lines


def _training(step: Step | None) -> list[str]:
    if step is None:
        return []
    figures = {"loss": step.loss, "grad norm": step.grad_norm, "learning rate": step.learning_rate}
    parts = [f"{name} {_figure(value)}" for name, value in figures.items() if value is not None]
    return [f"training {'  '.join(parts)}"] if parts else []


def _findings(update: WatchUpdate) -> list[str]:
    lines = []
    for finding in update.diagnosis.findings:
        if finding.echo_of is None:
            lines.append(f"{_mark(finding)} {finding.shown_id:<6} {_where(finding)}{finding.text}")
            if finding.fix:
                lines.append(f"         fix: {finding.fix}")
    return lines


def _mark(finding: Finding) -> str:
    return {"error": "!", "warning": "?"}.get(finding.severity, "-")


def _where(finding: Finding) -> str:
    parts = [f"rank {finding.rank}" if finding.rank is not None else "", finding.host or ""]
    where = " on ".join(p for p in parts if p)
    return f"{where}: " if where else ""


def _figure(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `4 h 50 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "?"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def rfc3339(seconds: float) -> str:
    """Seconds since 1970 as an RFC 3339 UTC stamp."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
