"""Owns telling what a submission did or would do."""

from __future__ import annotations

from collections.abc import Sequence

from gpt_tune import jobs
from gpt_tune.errors import EXIT_DONE, unknown_name
from gpt_tune.ledger import RunRecord
from gpt_tune.words import gpu_hours_words, seconds_words
from gpt_tune.workflows.launch import Launch
from gpt_tune.workflows.outside import OutsideJob
from tui.cli.output import emit_json, say, show
from tui.widgets.words import plural


def describe(launch: Launch) -> None:
    """What will happen and what it costs, on stderr: it comes before a question."""
    spec = launch.spec
    unit = (
        plural(spec.gpus, "GPU")
        if spec.gpus
        else plural(spec.tasks_per_node * spec.nodes, "process", "processes")
    )
    nodes = plural(spec.nodes, "node")
    say(f"{spec.profile.name or spec.profile.recipe}: {unit} on {nodes} of {spec.site.cluster}")
    if launch.plan is not None:
        from tui.cli.plan_text import layout_words, memory_words

        say(f"  layout   {layout_words(launch.plan.layout, launch.plan.trainer)}")
        say(f"  step     {seconds_words(launch.plan.step.seconds)}, memory {memory_words(launch.plan)} GiB")
    if launch.gpu_hours:
        say(f"  cost     {gpu_hours_words(launch.gpu_hours)}")
    elif launch.rate:
        say(f"  cost     {launch.rate}")
    if launch.edited:
        say(f"  edited   {', '.join(launch.edited)}")
    say(f"  folder   {spec.run_dir}")
    for warning in launch.warnings:
        say(f"  note: {warning}")


def edited(launch: Launch, files: Sequence[str]) -> Launch:
    """The job with these files edited by the user. UserError for a file it has not, or a text that will not do."""
    from gpt_tune.workflows import edits
    from gpt_tune.workflows.launch import refuse_secrets, with_edits
    from tui import editor

    changes: dict[str, edits.Edit] = {}
    known = {f.path: f for f in launch.rendered.files}
    for name in files:
        if name not in known:
            raise unknown_name("file", name, known, "this job")
        before = edits.text_of(known[name])
        after = editor.edit(name, before, editor.command())
        if after != before:
            changes[name] = edits.edited(launch.spec, launch.rendered, name, after)
    ready = with_edits(launch, changes)
    refuse_secrets(ready)
    return ready


def report_dry_run(launch: Launch, as_json: bool) -> int:
    """What would be submitted; nothing was written."""
    script = next(f for f in launch.rendered.files if f.path == launch.rendered.script)
    if as_json:
        emit_json(
            {
                "schema": "gpt-tune/submit/1",
                "run_id": None,
                "cluster": launch.spec.site.cluster,
                "scheduler": launch.spec.scheduler,
                "job_id": None,
                "job_ids": [],
                "state": "DRY_RUN",
                "run_dir": launch.spec.run_dir,
                "log_paths": list(launch.rendered.log_paths),
                "script": f"{launch.spec.run_dir}/{launch.rendered.script}",
                "files": [f.path for f in launch.rendered.files],
                "plan": launch.plan.to_json() if launch.plan else None,
                "gpu_hours": launch.gpu_hours,
                "gpu_hours_per_1000_steps": launch.thousand_steps,
                "warnings": list(launch.warnings),
                "node_hours": launch.node_hours,
                "edited": list(launch.edited),
            }
        )
        return EXIT_DONE
    describe(launch)
    say("Nothing was submitted. The job script:")
    for line in script.content.decode("utf-8", "replace").splitlines():
        show(line)
    return EXIT_DONE


def report_submitted(record: RunRecord, warnings: Sequence[str], as_json: bool) -> int:
    """What was submitted."""
    if as_json:
        emit_json({**jobs.submit_json(record), "warnings": list(warnings)})
        return EXIT_DONE
    show(f"{record.run_id}  job {record.job_id or 'unknown'}  {record.state}")
    say(f"Run folder {record.run_dir}. Follow it with `gpt-tune watch {record.run_id}`.")
    return EXIT_DONE


def report_changed(command: str, record: RunRecord, as_json: bool) -> int:
    """A job after something was done to it."""
    if as_json:
        emit_json({"schema": f"gpt-tune/{command}/1", command: [jobs.run_json(record)]})
        return EXIT_DONE
    why = jobs.reason_text(record)
    show(f"{record.run_id}  job {record.job_id or 'unknown'}  {record.state}{f' ({why})' if why else ''}")
    return EXIT_DONE


def report_outside(command: str, job: OutsideJob, as_json: bool) -> int:
    """A job that is no run after something was done to it."""
    if as_json:
        emit_json({"schema": f"gpt-tune/{command}/1", command: [job.to_json()]})
        return EXIT_DONE
    show(f"job {job.job_id} ({job.status.name}, not ours)  {job.status.state}")
    return EXIT_DONE
