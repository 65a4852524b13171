"""Owns the outermost boundary: one command line in, an exit code out, every failure in one clear sentence."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from gpt_tune.errors import EXIT_BUG, EXIT_DONE, EXIT_INTERRUPTED, EXIT_USAGE, UserError
from gpt_tune.schedulers import login
from tui.cli.output import emit_json, say

ERROR_SCHEMA = "gpt-tune/error/1"


def run(arguments: Sequence[str]) -> int:
    """Run a command line. Nothing but a bug ends in a traceback, and that goes to a file."""
    from tui.cli.app import cli

    wants_json = "--json" in _before_dashes(arguments)
    _prepare_streams()
    if arguments and sys.stdin.isatty() and sys.stderr.isatty():
        login.handler = login.in_terminal
    try:
        # Not cli.main: it turns a closed pipe into exit 1 and an end of input into a traceback.
        with cli.make_context("gpt-tune", list(arguments)) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else EXIT_DONE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except UserError as error:
        return _fail(error.message, error.hint, error.exit_code, wants_json)
    except click.UsageError as error:
        return _fail(_sentence(error), _usage_hint(error), EXIT_USAGE, wants_json)
    except click.ClickException as error:
        return _fail(error.format_message(), "", EXIT_USAGE, wants_json)
    except BrokenPipeError:
        return _reader_left()
    except (KeyboardInterrupt, EOFError, click.Abort):
        return _fail("Interrupted.", "", EXIT_INTERRUPTED, wants_json)
    except Exception as error:  # noqa: BLE001  the last line of defence: a bug becomes a message and a file
        return _bug(error, wants_json)


def _before_dashes(arguments: Sequence[str]) -> list[str]:
    given = list(arguments)
    return given[: given.index("--")] if "--" in given else given


def _prepare_streams() -> None:
    """Never die because a terminal cannot show a character."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, hint: str, code: int, wants_json: bool) -> int:
    try:
        if wants_json:
            emit_json({"schema": ERROR_SCHEMA, "error": {"message": message, "hint": hint, "code": code}})
        say(f"gpt-tune: {message}")
        if hint:
            say(f"  {hint}")
    except BrokenPipeError:
        _reader_left()
    return code


def _sentence(error: click.UsageError) -> str:
    message = error.format_message()
    return message if message.endswith((".", "?")) else f"{message}."


def _usage_hint(error: click.UsageError) -> str:
    return f"See `{error.ctx.command_path} --help`." if error.ctx else "See `gpt-tune --help`."


def _reader_left() -> int:
    """The program at the other end of the pipe has read enough: that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_DONE


def _bug(error: Exception, wants_json: bool) -> int:
    """Keep the traceback in a file and say where; GPT_TUNE_DEBUG=1 shows it as well."""
    text = "".join(traceback.format_exception(error))
    if os.environ.get("GPT_TUNE_DEBUG"):
        say(text)
    place = _write_report(text)
    hint = f"Please report it with {place}." if place else "Set GPT_TUNE_DEBUG=1 to see where."
    return _fail(f"A bug in gpt-tune: {type(error).__name__}: {error}.", hint, EXIT_BUG, wants_json)


def _write_report(text: str) -> Path | None:
    from gpt_tune.profiles.files import write_private
    from gpt_tune.resources import state_dir

    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    try:
        return write_private(state_dir() / "bugs" / f"{stamp}-{os.getpid()}.txt", text)
    except UserError:
        return None
