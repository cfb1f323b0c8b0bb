"""Headless Chromium, controlled through W3C WebDriver."""

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key in the WebDriver standard


class Browser:
    """A WebDriver session."""

    def __init__(self, driver, *arguments):
        self._driver = driver
        options = {
            "binary": shutil.which("chromium"),
            # Containers lack a sandbox and shared memory.
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *arguments],
        }
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._send("POST", "", {"capabilities": {"alwaysMatch": always}})
        self._session = f"/{session['sessionId']}"

    def _send(self, method, path, value=None):
        request = urllib.request.Request(
            f"{self._driver}/session{path}",
            None if value is None else json.dumps(value).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read())["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    def do(self, path, **value):
        return self._send("POST", f"{self._session}/{path}", value)

    def run(self, script, *args):
        return self.do("execute/sync", script=script, args=args)

    def find(self, selector):
        return self.do("element", using="css selector", value=selector)[ELEMENT]

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )

    def type(self, name, text):
        """Replace the text of a field."""
        field = self.find(f"#in-{name}")
        self.do(f"element/{field}/clear")
        self.do(f"element/{field}/value", text=text)

    def open(self, url, model):
        self.do("url", url="about:blank")
        self.do("url", url=f"{url}#{model}")
        self.wait(lambda: self.texts("textarea"))

    def ask(self):
        """Press the button; return the text of the answer."""
        self.run("document.querySelector('#answer').replaceChildren()")
        self.do(f"element/{self.find('#ask')}/click")
        return self.wait(lambda: self.texts("#answer")[0])

    def wait(self, condition):
        for _ in range(200):
            if found := condition():
                return found
            time.sleep(0.05)
        raise AssertionError(self.texts("body"))

    def console_messages(self):
        """Return the console messages since the last call."""
        return [entry["message"] for entry in self.do("se/log", type="browser")]

    def close(self):
        self._send("DELETE", self._session)


@pytest.fixture(scope="module")
def driver():
    """Start chromedriver; return its address."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no chromium and chromedriver here (Debian: chromium chromium-driver)")
    process = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        for line in process.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                break
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextlib.contextmanager
def browsing(driver, *arguments):
    browser = Browser(driver, *arguments)
    try:
        yield browser
    finally:
        browser.close()
