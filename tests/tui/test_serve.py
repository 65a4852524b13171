"""The wizard in a browser: who gets in and who does not, by HTTP and by a real headless Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the extra `serve` is not installed")
pytest.importorskip("textual_serve", reason="the extra `serve` is not installed")

from aiohttp import ClientSession, CookieJar

from gpt_tune.errors import UserError
from tests.tui import browser
from tests.tui.browser import Browser
from tui import serve

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def url(home: Path) -> Iterator[str]:
    """A running `gpt-tune serve`; at the end it is told to stop and must do so."""
    command = [sys.executable, "-m", "tui", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ})
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["serve"][0]["url"]
    finally:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (0, -signal.SIGTERM, 130)
        assert not [c for c in children if Path(f"/proc/{c}").exists() and "serve" in _command(c)]


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
        yield session


async def test_the_token_lets_one_browser_in_once(url: str, client: ClientSession) -> None:
    base = url.partition("?")[0]
    for path in ("", "static/js/textual.js", "ws", "download/x", "?token=", "?token=wrong", "?token=ä"):
        async with client.get(base + path) as answer:
            assert answer.status == 403
            assert "gpt-tune serve" in await answer.text()
    async with client.get(url, allow_redirects=False) as answer:
        assert answer.status == 303
        assert answer.headers["Location"] == "/"
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
    async with client.get(base) as answer:
        page = await answer.text()
        assert answer.status == 200
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "token" not in page
    async with ClientSession() as other, other.get(url) as answer:
        assert answer.status == 403, "the address has been used"


async def test_neither_another_page_nor_another_name_gets_in(url: str, client: ClientSession) -> None:
    base = url.partition("?")[0]
    async with client.get(url, headers={"Host": "evil.example"}) as answer:
        assert answer.status == 403, "a name that somebody points at this machine"
    async with client.get(url) as answer:
        assert answer.status == 200
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        async with client.get(base + "ws", headers=headers) as answer:
            assert answer.status == 403
    async with client.get(base, headers={"Host": "localhost:9000"}) as answer:  # ssh -L 9000:...
        assert "ws://localhost:9000/ws" in await answer.text()


async def test_only_the_loopback_listens(url: str) -> None:
    port = int(url.rpartition(":")[2].partition("/")[0])
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    assert [a for a in listening if a.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def test_a_port_that_is_taken_is_one_sentence() -> None:
    taken = serve.listen(0)
    with pytest.raises(UserError, match="it is in use"):
        serve.listen(taken.getsockname()[1])
    taken.close()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8000", "127.0.0.1"),
        ("localhost", "localhost"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("", ""),
    ],
)
def test_a_host_without_its_port(host: str, name: str) -> None:
    assert serve._host_of(host) == name


@pytest.mark.terminal
@pytest.mark.skipif(browser.program() is None, reason="no Chromium on this machine")
async def test_a_real_browser_shows_the_wizard_and_its_keys_work(url: str, tmp_path: Path) -> None:
    async with Browser(tmp_path / "profile") as chromium:
        await chromium.open(url)
        await chromium.until("window.received?.includes('Plan, submit')", "the first screen")
        assert "token" not in await chromium.evaluate("location.href")
        assert await chromium.evaluate("document.cookie") == "", "scripts cannot read the session"
        before = await chromium.picture()
        await chromium.evaluate("document.querySelector('.xterm-helper-textarea').focus()")
        await chromium.press("?", 191, "?")
        await chromium.until("received.includes('gpt-tune plans a parallel layout')", "the help window")
        for _ in range(100):  # drawn a moment later
            if await chromium.picture() != before:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("the picture did not change")
        await chromium.evaluate("location.reload()")
        await chromium.until("window.received?.includes('Plan, submit')", "the same browser may load again")
    async with Browser(tmp_path / "other") as stranger:
        await stranger.open(url)
        assert await stranger.until("document.body?.innerText", "an answer")
        assert "It works once" in await stranger.evaluate("document.body.innerText")
