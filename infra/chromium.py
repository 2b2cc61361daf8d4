"""A headless Chromium, driven by its own DevTools protocol over a websocket: no driver to install."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from comfyfarm.clock import pause

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_START_S = 60.0
_POLL_S = 0.2


class UiError(Exception):
    """The page did not come to what was waited for."""


def find_chromium() -> str | None:
    """The program, if one is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def open_page(program: str, *, width: int = 1440, height: int = 1000) -> Iterator["Page"]:
    """A page in a browser of its own, ended with the block.

    Raises:
        UiError: the browser did not start.
    """
    with tempfile.TemporaryDirectory(prefix="comfyfarm-ui-", ignore_cleanup_errors=True) as profile:
        command = [
            program, "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}",
            f"--window-size={width},{height}", "--hide-scrollbars", "--no-first-run", "--disable-gpu",
            "--disable-background-networking", "about:blank",
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # it refuses to run as root otherwise
        browser = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with connect(_page_url(Path(profile)), max_size=None) as socket:
                yield Page(socket)
        finally:
            browser.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                browser.wait(10)
            browser.kill()


def _page_url(profile: Path) -> str:
    port_file = profile / "DevToolsActivePort"

    def look() -> str:
        if not port_file.is_file():
            return ""
        port = port_file.read_text(encoding="ascii").split("\n", 1)[0]
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        return str(pages[0]["webSocketDebuggerUrl"]) if pages else ""

    return str(_until(look, "Chromium did not start", _START_S))


def _until(look: Callable[[], Any], what: str, timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise UiError(f"{what} (waited {timeout_s:.0f} s)")
        pause(_POLL_S)
    return found


class Page:
    """One tab. Elements are named by CSS selector, or by the text that people read on them."""

    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._id = 0
        self.errors: list[str] = []
        """What the page's own code complained of."""
        for domain in ("Page", "Runtime"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        self._socket.send(json.dumps({"id": self._id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("method") == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.errors.append(str(details.get("exception", {}).get("description", details["text"])))
            if message.get("id") == self._id:
                if "error" in message:
                    raise UiError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    def go(self, url: str) -> None:
        """Open an address."""
        self._call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page; None when it throws."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        return answer["result"].get("value")

    def wait(self, expression: str, what: str, *, timeout_s: float = 30.0) -> Any:
        """Wait until the expression is true.

        Raises:
            UiError: it did not become so.
        """
        return _until(lambda: self.js(expression), f"{what} did not appear", timeout_s)

    def wait_text(self, text: str, *, timeout_s: float = 30.0) -> None:
        """Wait until the page shows the text."""
        self.wait(f"document.body.innerText.includes({json.dumps(text)})", repr(text), timeout_s=timeout_s)

    def click(self, selector: str, text: str = "", *, prefix: bool = False, timeout_s: float = 30.0) -> None:
        """Click the first visible element with that text, or that prefix, in its middle as a mouse does.

        One that something else covers, such as a message, is waited for.
        """
        found = _VISIBLE % (json.dumps(selector), json.dumps(text), json.dumps(prefix))
        place = self.wait(found, f"{selector} {text!r}", timeout_s=timeout_s)
        at: dict[str, Any] = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, **at)

    def click_until(self, selector: str, text: str, expression: str, *, prefix: bool = False) -> None:
        """Click, again if need be, until the expression is true.

        A click is lost when the page moves its parts while it loads, or still checks what was typed.

        Raises:
            UiError: it did not become so.
        """
        for tries_left in (3, 2, 1, 0):
            self.click(selector, text, prefix=prefix)
            try:
                self.wait(expression, f"what follows {text!r}", timeout_s=8.0)
                return
            except UiError:
                if not tries_left:
                    raise

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self._call("Input.insertText", text=text)

    def select_all(self) -> None:
        """Ctrl-A in what has the focus."""
        key = {"key": "a", "code": "KeyA", "windowsVirtualKeyCode": 65, "modifiers": 2}
        self._call("Input.dispatchKeyEvent", type="rawKeyDown", commands=["selectAll"], **key)
        self._call("Input.dispatchKeyEvent", type="keyUp", **key)

    def text(self) -> str:
        """All that the page shows as text."""
        return str(self.js("document.body.innerText"))

    def settle(self) -> None:
        """Let animations and late data come in, which nothing announces."""
        pause(1.0)

    def screenshot(self, file: Path) -> None:
        """Keep what the page looks like."""
        file.parent.mkdir(parents=True, exist_ok=True)
        shot = self._call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(shot["data"]))


_VISIBLE = """(() => {
  const selector = %s, text = %s, prefix = %s;
  for (const found of document.querySelectorAll(selector)) {
    const shown = (found.innerText || found.getAttribute('aria-label') || '').trim();
    if (text && (prefix ? !shown.startsWith(text) : shown !== text)) continue;
    found.scrollIntoView({block: 'center'});
    const box = found.getBoundingClientRect();
    const x = box.x + box.width / 2, y = box.y + box.height / 2;
    const top = document.elementFromPoint(x, y);
    if (box.width && box.height && found.contains(top) && !found.disabled) return [x, y];
  }
  return null;
})()"""
