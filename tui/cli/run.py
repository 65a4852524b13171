"""Owns the outermost boundary: one command line in, an exit code out, every failure in one clear sentence."""

from __future__ import annotations

import errno
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
    _prepare_streams()
    try:
        code = _run(arguments, "--json" in _before_dashes(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        return _cannot_write(error)
    return code


def _run(arguments: Sequence[str], wants_json: bool) -> int:
    from tui.cli.app import cli

    if arguments and sys.stdin.isatty() and sys.stderr.isatty():
        login.handler = login.in_terminal
    try:
        # Not cli.main: it turns a closed pipe into exit 1 and an end of input into a traceback.
        with cli.make_context("gpt-tune", list(arguments)) as context:
            result = cli.invoke(context)
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
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and not _stdout_works():
            raise
        return _bug(error, wants_json)


def _before_dashes(arguments: Sequence[str]) -> list[str]:
    given = list(arguments)
    return given[: given.index("--")] if "--" in given else given


def _prepare_streams() -> None:
    """Never die because a terminal cannot show a character, or because a stream was closed before the start."""
    # In this order each takes its own number, so that no file opened later gets what is printed.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    if sys.stdout is None:  # not writable: what has nowhere to go is an error, and silence none
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, hint: str, code: int, wants_json: bool) -> int:
    try:
        if wants_json:
            _emit_error(message, hint, code)
        say(f"gpt-tune: {message}")
        if hint:
            say(f"  {hint}")
    except BrokenPipeError:
        _reader_left()
    return code


def _emit_error(message: str, hint: str, code: int) -> None:
    try:
        emit_json({"schema": ERROR_SCHEMA, "error": {"message": message, "hint": hint, "code": code}})
    except BrokenPipeError:
        raise
    except OSError:  # stdout is closed or full: stderr says it still
        _silence()


def _sentence(error: click.UsageError) -> str:
    message = error.format_message()
    return message if message.endswith((".", "?")) else f"{message}."


def _usage_hint(error: click.UsageError) -> str:
    return f"See `{error.ctx.command_path} --help`." if error.ctx else "See `gpt-tune --help`."


def _reader_left() -> int:
    """The program at the other end of the pipe has read enough: that is no failure."""
    _silence()
    return EXIT_DONE


def _cannot_write(error: OSError) -> int:
    """Stdout is closed, or its disk is full."""
    _silence()
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
    return _fail(f"Cannot write to standard output: {reason}.", "", EXIT_USAGE, wants_json=False)


def _stdout_works() -> bool:
    """Whether stdout takes a character; asked only when something could not be written."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except (OSError, ValueError):
        return False
    return True


def _silence() -> None:
    """What is still to be written to stdout goes nowhere, without a traceback at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
