"""Chromium without a window, driven over its debugging protocol: what a page shows, says and asks for."""

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from tests.debian import installed
from tests.patience import PATIENCE
from websockets.sync.client import ClientConnection, connect

MISSING = "Chromium is missing: install it (Debian: apt-get install --no-install-recommends chromium)"
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
]
_LOOK = """(of) => new Promise((done) => {
  const end = Date.now() + 2000;
  const look = () => {
    let found = null;
    try { found = of() } catch {}
    if (!found && Date.now() < end) requestAnimationFrame(look);
    else done(found && typeof found === "object" ? true : found || null);  // of whatever frame
  };
  look();
})"""


class Browser:
    """One page of a Chromium; `problems` also has what it was not allowed to do."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.problems: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message.get("method"), message.get("params", {}))

    def _note(self, event: str | None, params: Any) -> None:
        if event == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert", "warning"):
            self.problems.append(" ".join(str(each.get("value", each)) for each in params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def run(self, expression: str, world: int | None = None) -> Any:
        where = {} if world is None else {"contextId": world}
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, **where)
        if "exceptionDetails" in answer:
            raise RuntimeError(
                f"{expression[:2000]}: {answer['exceptionDetails'].get('exception', {}).get('description')}"
            )
        return answer["result"].get("value")

    def world(self, part: str) -> int:
        """Return a world for scripts of tests: the page's own scripts do not see it, and its policy does not bind it.

        Args:
            part: of the address of the frame whose document it sees; without such a frame, that of the page.
        """
        tree = self.send("Page.getFrameTree")["frameTree"]
        frames = [each["frame"] for each in tree.get("childFrames", ())]
        frame = next((each for each in frames if part in each["url"]), tree["frame"])
        world = self.send("Page.createIsolatedWorld", frameId=frame["id"], worldName="tests")
        return int(world["executionContextId"])

    def until(self, expression: str) -> Any:
        """Return the value of an expression once it is true; a page that goes away meanwhile is asked anew."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            with contextlib.suppress(RuntimeError):
                found = self.run(f"({_LOOK})(() => {expression})")
                if found:
                    return found
        raise AssertionError(f"{expression} did not come true; {self.problems}; the page says: {self.text()[:1500]}")

    def text(self, frame: str = "") -> str:
        document = f"document.querySelector({json.dumps(frame)}).contentDocument" if frame else "document"
        return str(self.run(f"{document}.body?.innerText ?? ''"))

    def press(self, key: str, code: int = 0) -> None:
        typed = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text="\r" if key == "Enter" else "", **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", **typed)

    def write(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def size(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, name: str) -> None:
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, file: Path, *, whole: bool = True) -> None:
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(answer["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start a Chromium with a profile of its own, and end it."""
    program = installed("chromium", _program)
    assert program, MISSING
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            address = _address(process, Path(profile))
            with connect(address, max_size=None, ping_interval=None, open_timeout=PATIENCE) as socket:
                yield Browser(socket)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()
            process.wait()


def _program() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Return where its page is driven, once Chromium has written where it listens."""
    file, limit = profile / "DevToolsActivePort", time.monotonic() + PATIENCE
    while not (file.exists() and file.read_text().count("\n")):
        assert process.poll() is None, f"Chromium ended with {process.returncode}"
        assert time.monotonic() < limit, "Chromium did not start"
        time.sleep(0.05)
    port = file.read_text().split("\n", 1)[0]
    while True:
        listed = httpx.get(f"http://127.0.0.1:{port}/json/list", trust_env=False, timeout=PATIENCE).json()
        for page in listed:
            if page["type"] == "page":
                return str(page["webSocketDebuggerUrl"])
        assert time.monotonic() < limit, f"Chromium has no page: {listed}"
        time.sleep(0.05)
