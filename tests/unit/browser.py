"""A headless browser that opens pages and evaluates JavaScript."""

import base64
import json
import re
import subprocess
import threading
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import numpy as np

AXE = """axe.run().then(found => found.violations.filter(one => ["serious", "critical"].includes(one.impact)).flatMap(
  one => one.nodes.map(node => `${one.id}: ${node.html} ${node.failureSummary}`)))"""

STILL = """(() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("*, ::before, ::after { transition: none !important; animation: none !important; }");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
})()"""


class Page:
    """A page in headless Chromium, spoken to over its debugging protocol."""

    SWITCHES = (
        "headless no-sandbox enable-unsafe-swiftshader use-angle=swiftshader disable-quic no-first-run "
        "disable-background-networking disable-component-update disable-sync window-size=1280,800"
    )

    def __init__(self, chromium: Path, folder: Path):
        from websockets.sync.client import connect

        switches = [f"--{s}" for s in self.SWITCHES.split()] + [
            f"--user-data-dir={folder}",
            "--remote-debugging-port=0",
        ]
        self.process = subprocess.Popen([str(chromium), *switches, "about:blank"], stderr=subprocess.PIPE, text=True)
        stderr = self.process.stderr
        found = next(m for m in (re.search(r"DevTools listening on ws://([\d.:]+)/", line) for line in stderr) if m)
        threading.Thread(target=lambda: [None for _ in stderr], daemon=True).start()
        with urllib.request.urlopen(f"http://{found.group(1)}/json") as reply:
            target = next(page for page in json.load(reply) if page["type"] == "page")
        self.socket = connect(target["webSocketDebuggerUrl"], max_size=None)
        self.count, self.events = 0, []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("id") == self.count:
                assert "result" in message, (method, message)
                return message["result"]
            self.events.append(message)

    def js(self, code):
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    def resize(self, width):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.wait(f"innerWidth === {width}", meanwhile=lambda _: time.sleep(0.02))

    def prefer(self, scheme):
        """Makes "dark" or "light" the system's colors, "" the browser's own."""
        features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
        self.call("Emulation.setEmulatedMedia", features=features)

    def failures(self):
        """Returns what scripts threw, wrote to the console and did not load since the test began."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
        return [event for event in self.events if event["method"] in kinds]

    def violations(self):
        """Returns what axe finds within 5 s: low contrast, missing names, parts that keys do not reach."""
        axe = find_spec("axe_core_python")
        if not self.js("!!window.axe"):
            self.js((Path(axe.origin).parent / "axe.min.js").read_text() + "; 0")
            self.js(STILL)
        end = time.monotonic() + 5  # Some of it is still moving.
        while (found := self.js(AXE)) and time.monotonic() < end:
            time.sleep(0.2)
        return found

    def wait(self, code, seconds=120.0, meanwhile=time.sleep):
        """Waits until a piece of JavaScript is true; meanwhile(0.2) passes the time."""
        end = time.monotonic() + seconds
        while not self.js(code):
            assert time.monotonic() < end, f"never true: {code}\n{self.js('document.body.innerText')}"
            meanwhile(0.2)

    def mouse(self, kind, at, **more):
        x, y = (float(value) for value in at)
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, button="left", **more)

    def click(self, element):
        """Clicks into the middle of an element, which is an expression of JavaScript."""
        at = self.js(f"(r => [r.x + r.width / 2, r.y + r.height / 2])(({element}).getBoundingClientRect())")
        self.mouse("Pressed", at, buttons=1, clickCount=1)
        self.mouse("Released", at, clickCount=1)

    def drag(self, start, end, steps=10):
        """Moves the pressed mouse from one pixel (2,) to another."""
        self.mouse("Moved", start)
        self.mouse("Pressed", start, buttons=1, clickCount=1)
        for at in np.linspace(start, end, steps + 1)[1:]:
            self.mouse("Moved", at, buttons=1)
        self.mouse("Released", end, clickCount=1)

    def screenshot(self) -> np.ndarray:
        from io import BytesIO

        from PIL import Image

        data = base64.b64decode(self.call("Page.captureScreenshot")["data"])
        return np.asarray(Image.open(BytesIO(data)).convert("RGB"))

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=30)
