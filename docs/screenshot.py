"""Take the pictures of the local server's page for the READMEs, light and dark.

    python docs/screenshot.py saved_models/support "I was charged twice this month"
    python docs/screenshot.py saved_models/reviews "배우들 연기가 정말 좋았어요" --language ko

The first argument is an exported classifier. The pictures are docs/_static/server.png and
server-dark.png; in Korean, server-ko.png and server-ko-dark.png. The script needs Debian's packages
chromium and chromium-driver, and fonts-nanum for Korean.
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

from tests.server.test_page import Browser  # noqa: E402

PORT = 8599
WIDTH = 900


def wait_for(url):
    """Return the answer of a server that is starting."""
    for _ in range(300):
        try:
            return urllib.request.urlopen(url).read()
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


def take(browser, scheme):
    """Return the page down to the end of the answer as PNG."""

    def send(command, **parameters):
        return browser.do("goog/cdp/execute", cmd=command, params=parameters)

    features = [{"name": "prefers-color-scheme", "value": scheme}]
    send("Emulation.setEmulatedMedia", features=features)
    end = "return document.getElementById('answer').getBoundingClientRect().bottom + scrollY + 24"
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": browser.run(end), "scale": 1}
    found = send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    return base64.b64decode(found["data"])


def main():
    """Serve the model, ask, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text")
    parser.add_argument("--language", choices=["en", "ko"], default="en")
    args = parser.parse_args()
    address = f"http://127.0.0.1:{PORT}"
    server = subprocess.Popen(
        [sys.executable, "-m", "keras_bert", "serve", args.model, "--port", str(PORT)]
    )
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        found = next(filter(None, (re.search(r"on port (\d+)\.", line) for line in driver.stdout)))
        wait_for(f"{address}/v1/models/{args.model.name}")
        options = [
            f"--window-size={WIDTH},1400",
            f"--accept-lang={args.language}",
            "--hide-scrollbars",
        ]
        browser = Browser(f"http://127.0.0.1:{found[1]}", *options)
        browser.open(address, args.model.name)
        browser.type("text", args.text)
        browser.ask()
        time.sleep(0.5)
        name = "server" if args.language == "en" else f"server-{args.language}"
        for scheme, ending in (("light", ""), ("dark", "-dark")):
            (ROOT / "docs" / "_static" / f"{name}{ending}.png").write_bytes(take(browser, scheme))
        browser.close()
    finally:
        server.terminate()
        driver.terminate()


if __name__ == "__main__":
    main()
