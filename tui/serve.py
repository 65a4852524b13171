"""Owns the wizard in a browser: a web server on this machine's loopback that lets one browser in, by a token used once.

A wizard submits jobs as the user who started it, so nothing else may reach it: no other machine (loopback only), no
other user of this machine (token, then a cookie that scripts cannot read), no web page (Host and Origin are checked).
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import os
import secrets
import shlex
import socket
import sys

from gpt_tune.errors import UserError
from gpt_tune.resources import checkout, install_words

try:
    from aiohttp import web
    from aiohttp.typedefs import Handler, Middleware
    from textual_serve.server import Server
except ImportError as missing:
    raise UserError(
        f"The browser needs a package that is not installed ({missing.name}).",
        install_words("serve", checkout()),
    ) from missing

HOST = "127.0.0.1"
COOKIE = "gpt_tune_session"
_NAMES = ("127.0.0.1", "localhost", "[::1]")  # what a browser may call this machine, also through ssh -L
_COMMAND = "from tui.app import run_wizard; raise SystemExit(run_wizard())"


def headers_for(host: str) -> dict[str, str]:
    """What every answer carries. Nothing from elsewhere is loaded (the page names a font of Google's), and no page may
    frame this one."""
    policy = (
        "default-src 'self'", "script-src 'self' 'unsafe-inline'", "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:", f"connect-src 'self' ws://{host}", "frame-ancestors 'none'",
    )  # fmt: skip
    return {
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }


class Door:
    """Decides who comes in. token: good for one browser, which gets a session for it."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._used = False

    def refusal(self, request: web.Request) -> str:
        """Why a request may not come in; empty when it may."""
        if _host_of(request.host) not in _NAMES:
            return "This server answers to this machine's own names only."
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{request.host}":
            return "Another page may not use this one."
        if _same(request.cookies.get(COOKIE, ""), self._session):
            return ""
        return "Open the address that `gpt-tune serve` printed. It works once: start it again for another browser."

    def try_token(self, request: web.Request) -> web.Response | None:
        """The answer to the first request with the right token: a session, and an address without the token."""
        given = request.query.get("token", "")
        if self._used or not _same(given, self.token) or _host_of(request.host) not in _NAMES:
            return None
        self._used = True
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(COOKIE, self._session, httponly=True, samesite="Strict", path="/")
        return answer


def _same(given: str, secret: str) -> bool:
    """In a time that says nothing about where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _host_of(host: str) -> str:
    """A Host header without its port."""
    return host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host


class WizardServer(Server):
    """textual-serve's server behind the door: each session of the page is one wizard in a process of its own."""

    def __init__(self, door: Door, port: int) -> None:
        super().__init__(shlex.join([sys.executable, "-c", _COMMAND]), HOST, port, title="gpt-tune")
        self.door = door

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guard)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Says nothing: the command has said what there is to say."""

    @property
    def _guard(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            let_in = self.door.try_token(request) if request.path == "/" else None
            if let_in is not None:
                return let_in
            why = self.door.refusal(request)
            if why:
                return web.Response(status=403, text=why + "\n")
            # What the browser calls us, which differs behind `ssh -L`.
            self.public_url = f"http://{request.host}"
            answer = await handler(request)
            if not answer.prepared:
                answer.headers.update(headers_for(request.host))
            return answer

        return guard


def listen(port: int) -> socket.socket:
    """A socket on the loopback only; port 0 takes a free one. UserError when the port is taken or not ours."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # from now on a browser waits instead of being turned away
    except OSError as error:
        listening.close()
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise UserError(
            f"Cannot use port {port}: {reason}.", "Give another one, or --port 0 for any."
        ) from error
    return listening


def serve(listening: socket.socket, door: Door) -> None:
    """Serve until Ctrl+C or SIGTERM."""
    os.environ["COLORTERM"] = "truecolor"  # of the browser, whatever the command's own terminal can show
    logging.getLogger("textual-serve").setLevel(
        logging.WARNING
    )  # not each key, on the terminal of the command
    server = WizardServer(door, listening.getsockname()[1])
    loop = asyncio.new_event_loop()
    web.run_app(
        server._make_app(), sock=listening, print=None, access_log=None, loop=loop, shutdown_timeout=2.0
    )
