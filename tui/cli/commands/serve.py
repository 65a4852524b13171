"""Owns `gpt-tune serve`: the wizard in a browser, on this machine only."""

from __future__ import annotations

import sys

import click

from gpt_tune.errors import EXIT_DONE
from tui.cli.options import json_option
from tui.cli.output import emit_json, say, show


@click.command(
    help="The wizard in a browser. Only this machine can reach it, and only the first browser that opens the printed "
    "address; from elsewhere: ssh -L PORT:127.0.0.1:PORT. Ctrl+C ends it; jobs go on. Needs the extra gpt-tune[serve]."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port on 127.0.0.1; 0: a free one.",
)
@json_option
def command(port: int, as_json: bool) -> int:
    from tui import serve

    listening = serve.listen(port)
    door = serve.Door()
    port = listening.getsockname()[1]
    url = f"http://{serve.HOST}:{port}/?token={door.token}"
    if as_json:
        emit_json({"schema": "gpt-tune/serve/1", "serve": [{"url": url, "port": port}]})
    else:
        show(url)
        sys.stdout.flush()
        say(
            f"Open it in a browser of this machine (it works once), or forward it: ssh -L {port}:127.0.0.1:{port}"
        )
        say("Ctrl+C ends it; running jobs go on.")
    serve.serve(listening, door)
    return EXIT_DONE
