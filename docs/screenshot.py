"""Take the pictures of the local server's page and of examples/browser, light and dark.

    python docs/screenshot.py server saved_models/support "I was charged twice this month"
    python docs/screenshot.py server saved_models/reviews "정말 좋았어요" --language ko
    python docs/screenshot.py browser

`server` takes an exported classifier. The pictures are docs/_static/server.png and server-dark.png;
in Korean, server-ko.png and server-ko-dark.png. `browser` needs the library and the models that
examples/browser/README.md names. The script needs Debian's packages chromium and chromium-driver,
and fonts-nanum for Korean.
"""

import argparse
import base64
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.webdriver import Browser  # noqa: E402

PORT = 8599
ADDRESS = f"http://127.0.0.1:{PORT}"
WIDTH = 900


def wait_for(url):
    """Return the answer of a server that is starting."""
    for _ in range(300):
        try:
            return urllib.request.urlopen(url).read()
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


def take(browser, name, end):
    """Write a picture of the page down to an element, light and dark."""

    def send(command, **parameters):
        return browser.do("goog/cdp/execute", cmd=command, params=parameters)

    script = f"return document.querySelector('{end}').getBoundingClientRect().bottom + scrollY + 24"
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": browser.run(script), "scale": 1}
    for scheme, ending in (("light", ""), ("dark", "-dark")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        send("Emulation.setEmulatedMedia", features=features)
        picture = send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file = ROOT / "docs" / "_static" / f"{name}{ending}.png"
        file.write_bytes(base64.b64decode(picture["data"]))


def take_server(browser, args):
    """Ask a model on the page of the local server."""
    browser.open(ADDRESS, args.model.name)
    browser.type("text", args.text)
    browser.ask()
    time.sleep(0.5)
    take(browser, "server" if args.language == "en" else f"server-{args.language}", "#answer")


def take_browser(browser):
    """Press both buttons of examples/browser."""
    browser.do("url", url=ADDRESS)
    browser.wait(lambda: browser.texts("#status") == ["Ready."])
    for button, table in (("classify", "labels"), ("search", "ranked")):
        browser.run(f"document.querySelector('#{button}').click()")
        browser.wait(lambda table=table: browser.texts(f"#{table} td"))
    browser.run("document.querySelector('#status').remove()")
    take(browser, "browser", "#ranked")


def main():
    """Serve the page and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    pages = parser.add_subparsers(dest="page", required=True)
    server = pages.add_parser("server")
    server.add_argument("model", type=pathlib.Path)
    server.add_argument("text")
    server.add_argument("--language", choices=["en", "ko"], default="en")
    pages.add_parser("browser")
    args = parser.parse_args()
    command = ["http.server", "--directory", ROOT / "examples" / "browser", str(PORT)]
    if args.page == "server":
        command = ["keras_bert", "serve", args.model, "--trusted", "--port", str(PORT)]
    web_server = subprocess.Popen([sys.executable, "-m", *command])
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        port = next(filter(None, (re.search(r"on port (\d+)\.", line) for line in driver.stdout)))
        wait_for(ADDRESS)
        language = args.language if args.page == "server" else "en"
        options = [f"--window-size={WIDTH},1400", f"--accept-lang={language}", "--hide-scrollbars"]
        browser = Browser(f"http://127.0.0.1:{port[1]}", *options)
        if args.page == "server":
            take_server(browser, args)
        else:
            take_browser(browser)
        browser.close()
    finally:
        web_server.terminate()
        driver.terminate()


if __name__ == "__main__":
    main()
