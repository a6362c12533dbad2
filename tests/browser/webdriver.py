"""A WebDriver client of what the browser test needs, on the standard library alone: a session is JSON over HTTP."""

import base64
import json
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
TAB, ENTER = "\ue004", "\ue007"
# Far above what anything takes on a busy machine.
PATIENCE = 60


class WebDriverError(Exception):
    """What the driver said."""


class Browser:
    """One headless Chromium."""

    def __init__(self, driver_url, binary, width=1280, height=900, dark=False):
        self.url = driver_url
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            f"--window-size={width},{height}",
        ]
        options = {"binary": binary, "args": arguments}
        always = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = self._send("POST", "/session", {"capabilities": {"alwaysMatch": always}})
        self.session = answer["sessionId"]
        self.emulate(width, height, dark)

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise WebDriverError(f"{value['error']}: {value['message']}") from None

    def _do(self, method, path, body=None):
        return self._send(method, f"/session/{self.session}{path}", body)

    def devtools(self, command, **parameters):
        """A command of the DevTools protocol, for what WebDriver has no word for."""
        body = {"cmd": command, "params": parameters}
        return self._do("POST", "/goog/cdp/execute", body)

    def emulate(self, width, height, dark=False):
        """The size of the page in CSS pixels, and its scheme of colours."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        self._do("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a script's `return`."""
        return self._do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        found = self._do("POST", "/element", {"using": "css selector", "value": selector})
        return found[ELEMENT]

    def click(self, selector):
        self._do("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        element = self.find(selector)
        self._do("POST", f"/element/{element}/clear", {})
        self._do("POST", f"/element/{element}/value", {"text": text})

    def press(self, keys):
        """Presses keys wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self._do("POST", "/actions", {"actions": [keyboard]})

    def text(self, selector):
        """What an element shows; nothing if it is hidden."""
        script = "const it = document.querySelector(arguments[0]); return it ? it.innerText : null"
        return self.run(script, selector)

    def visible(self, selector):
        script = "const it = document.querySelector(arguments[0]); return !!it && it.checkVisibility()"
        return self.run(script, selector)

    def until(self, what, holds):
        """Waits until something holds, and gives what it gave."""
        end = time.monotonic() + PATIENCE
        while True:
            value = holds()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not in time: {what}; the page shows:\n{self.text('body')}")
            time.sleep(0.1)

    def complaints(self):
        """What the console has been told since the last look."""
        return self._do("POST", "/se/log", {"type": "browser"})

    def screenshot(self, path, whole=False):
        if whole:
            size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
            data = shot["data"]
        else:
            data = self._do("GET", "/screenshot")
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self._do("DELETE", "")
