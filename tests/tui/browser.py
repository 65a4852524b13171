"""Owns a real headless Chromium, driven through its own protocol (CDP): open a page, press keys, look at it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import time
from pathlib import Path
from typing import Any

import aiohttp

DEADLINE_SECONDS = 60.0
# The terminal is drawn on a canvas, so what came for it is kept as text beside it.
LISTEN = """
window.received = "";
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", async (event) => {
      const data = event.data instanceof Blob ? await event.data.arrayBuffer() : event.data;
      window.received += typeof data === "string" ? data : new TextDecoder().decode(data);
    });
  }
};
"""


def program() -> str | None:
    """A Chromium of this machine."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


class Browser:
    """`async with Browser(folder) as b: await b.open(url)`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Browser:
        self._process = await asyncio.create_subprocess_exec(
            str(program()), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--remote-debugging-port=0", "--no-first-run", "--window-size=1000,700", f"--user-data-dir={self._folder}",
            "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        port = await self._port()
        self._http = aiohttp.ClientSession()
        async with self._http.get(f"http://127.0.0.1:{port}/json") as answer:
            pages = [p for p in await answer.json() if p["type"] == "page"]
        self._page = await self._http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._page.close()
        await self._http.close()
        self._process.kill()
        await self._process.wait()

    async def _port(self) -> str:
        file = self._folder / "DevToolsActivePort"
        stop = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < stop:
            if file.exists() and (lines := file.read_text().splitlines()):
                return lines[0]
            await asyncio.sleep(0.05)
        raise AssertionError("Chromium did not start")

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        number = next(self._numbers)
        await self._page.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = json.loads((await self._page.receive(timeout=DEADLINE_SECONDS)).data)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    async def open(self, url: str) -> None:
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
        await self.call("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    async def until(self, script: str, what: str) -> Any:
        """Wait until an expression in the page is true."""
        stop = time.monotonic() + DEADLINE_SECONDS
        while not (value := await self.evaluate(script)):
            assert time.monotonic() < stop, (
                f"{what}: {await self.evaluate('document.body.innerText + received')!r}"
            )
            await asyncio.sleep(0.05)
        return value

    async def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    async def picture(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])
