"""Owns the list of commands. Each is imported only when it is run: no command pays for another."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from gpt_tune.errors import nearest

# Command -> (module, one line for --help). The line stands here so that --help imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "clusters": ("clusters", "What is here: partitions, nodes, free GPUs, limits."),
    "models": ("models", "The catalogue of models, or one of them."),
    "hardware": ("hardware", "The catalogue of GPUs and nodes, with sources."),
    "plan": ("plan", "Find the best parallel layouts for a model on some GPUs."),
    "estimate": ("estimate", "Memory and step time of one layout given by --fix."),
    "validate": ("validate", "Hold predictions against measured runs (CSV)."),
    "site": ("site", "What a cluster needs to know once: account, run folder, image."),
    "render": ("render", "Write every file of a job; nothing is submitted."),
    "submit": ("submit", "Submit a profile as a job."),
    "jobs": ("jobs", "Jobs, live and ended."),
    "note": ("note", "Your own words on a run."),
    "tag": ("tag", "Your own tags on a run, to find it again."),
    "queue": ("queue", "My jobs in the queue, why they wait, and what could start now."),
    "cancel": ("cancel", "Cancel a job."),
    "hold": ("hold", "Keep a waiting job from starting."),
    "release": ("release", "Let a held job start."),
    "requeue": ("requeue", "Put a running job back into the queue."),
    "signal": ("signal", "Send a signal to a job: save and stop, by default."),
    "resubmit": ("resubmit", "Submit a run again, with a fix for what ended it if asked."),
    "watch": ("watch", "Follow a job or log files."),
    "parse": ("parse", "Steps, losses and rates out of log files."),
    "diagnose": ("diagnose", "Why a job failed, from its log."),
    "nodes": ("nodes", "A job's nodes: last line, steps behind, GPU samples on request."),
    "findings": ("findings", "What was found of a run; dismiss or correct it."),
    "lint": ("lint", "Check job scripts and configurations for known mistakes."),
    "containers": ("containers", "Container images: versions, and the files that build them."),
    "sweep": ("sweep", "Short runs of several layouts, ranked."),
    "calibrate": ("calibrate", "Fit the predictions to this cluster."),
    "results": ("results", "Ended runs: list, export, compare, plot."),
    "replay": ("replay", "Show a recorded run in the monitor."),
    "serve": ("serve", "The wizard in a browser, on this machine only."),
    "profiles": ("profiles", "Saved choices: list, show, save, edit, remove, import, export."),
    "keys": ("keys", "The keys of the wizard by name, for those who want others."),
    "doctor": ("doctor", "What this machine and the cluster are missing."),
}


class Commands(click.Group):
    """A group that imports a command's module when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _exists(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS or not _exists(cmd_name):
            return None
        module = import_module(f"tui.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            close = nearest(args[0], self.list_commands(ctx))
            hint = f" Did you mean {close!r}?" if close else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _exists(name: str) -> bool:
    """Whether the command's module is part of this version."""
    return (Path(__file__).parent / "commands" / f"{COMMANDS[name][0]}.py").is_file()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Plan, submit and watch LLM training on Slurm. Without a command: the wizard.",
    epilog="Every command takes --json: one JSON object; watch and replay print one a line. Exit codes: 0 done, "
    "1 a finding, 2 wrong use or input, 3 the scheduler refused or is unreachable, 70 a bug of ours, 130 interrupted.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object on stdout (watch, replay: one a line), also for errors.",
)
@click.option(
    "--plain", is_flag=True, help="The wizard as plain questions: for screen readers and dumb terminals."
)
@click.option("--auto", is_flag=True, help="The wizard with every default, without questions.")
@click.option(
    "--dry-run", is_flag=True, help="With --plain or --auto: show what would be submitted, submit nothing."
)
@click.option("--profile", "profile", default=None, help="Start the wizard from this profile.")
@click.option("--version", "-V", is_flag=True, help="Print the version.")
@click.pass_context
def cli(
    ctx: click.Context,
    as_json: bool,
    plain: bool,
    auto: bool,
    dry_run: bool,
    profile: str | None,
    version: bool,
) -> int | None:
    ctx.obj = {"json": as_json}
    if version:
        from gpt_tune import __version__

        click.echo(f"gpt-tune {__version__}")
        return 0
    if ctx.invoked_subcommand is not None:
        if plain or auto or dry_run or profile:
            raise click.UsageError(
                "--plain, --auto, --dry-run and --profile belong to the wizard, not to a command.", ctx
            )
        return None
    if dry_run and not (plain or auto):
        raise click.UsageError("--dry-run goes with --plain or --auto.", ctx)
    from tui.cli.wizard import open_wizard

    return open_wizard(plain=plain, auto=auto, dry_run=dry_run, profile=profile, as_json=as_json)
