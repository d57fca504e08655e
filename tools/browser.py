"""A browser to test pages in: Debian's chromium through chromedriver, spoken to in the W3C WebDriver protocol."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-dev-shm-usage", "--window-size=1400,900",
]  # fmt: skip

AFTER_A_FRAME = """
return new Promise((done, failed) => requestAnimationFrame(() => setTimeout(() => {
  try { done((function () { SCRIPT
  }).apply(window, arguments)) } catch (error) { failed(error) }
})))"""


def missing():
    """What is not installed, or ""."""
    return ", ".join(name for name in ("chromium", "chromedriver") if shutil.which(name) is None)


class Browser:
    """One page at a time. `run` executes JavaScript and returns its result, `press` sends keys to the focus."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.base = f"http://127.0.0.1:{port}"
        options = {"args": FLAGS, "binary": shutil.which("chromium")}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        for _ in range(100):
            try:
                found = self._call("POST", "/session", {"capabilities": wanted})
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        self.base += "/session/" + found["sessionId"]

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            error.msg = json.load(error)["value"]["message"]  # what the page threw, not "Internal Server Error"
            raise

    def open(self, path):
        self.go(path.resolve().as_uri())

    def go(self, address):
        self._call("POST", "/url", {"url": address})
        self._painted()

    def run(self, script, *arguments):
        """What `script` returns. It runs after a frame: what earlier calls asked for is drawn by then."""
        after = AFTER_A_FRAME.replace("SCRIPT", script)
        return self._call("POST", "/execute/sync", {"script": after, "args": list(arguments)})

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})
        self._painted()

    def click(self, x, y, times=1):
        mouse = [{"type": "pointerMove", "x": int(x), "y": int(y)}]
        mouse += [{"type": kind, "button": 0} for _ in range(times) for kind in ("pointerDown", "pointerUp")]
        self._call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": mouse}]})
        self._painted()

    def _painted(self):
        """Returns when a frame was drawn: before its first one a page drops keys, and it draws what they ask in one."""
        self.run("")

    def resize(self, width, height):
        """The page gets this many pixels, also fewer than a window can have."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})

    def theme(self, name):
        """Pages are told that their reader likes "light" or "dark" ones."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        wanted = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        self._call("POST", "/goog/cdp/execute", wanted)

    def wait(self, script, seconds=10):
        """Whether what the script returns becomes true in time: pages draw in frames of their own."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def errors(self):
        """What the console complained about since the last call."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def close(self):
        try:
            self._call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(10)
