"""Take the picture of the local server's page for the README: docs/_static/server.png.

    python docs/screenshot.py saved_models/support

The argument is an exported classifier. Needs Debian's chromium and chromium-driver.
"""

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

TEXT = "I was charged twice this month"
PORT = 8599


def wait_for(url):
    """Return the answer of a server that is starting."""
    for _ in range(300):
        try:
            return urllib.request.urlopen(url).read()
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


def main():
    """Serve the model, ask, and take the picture."""
    model = pathlib.Path(sys.argv[1])
    address = f"http://127.0.0.1:{PORT}"
    server = subprocess.Popen(
        [sys.executable, "-m", "keras_bert", "serve", model, "--port", str(PORT)]
    )
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        found = next(filter(None, (re.search(r"on port (\d+)\.", line) for line in driver.stdout)))
        wait_for(f"{address}/v1/models/{model.name}")
        browser = Browser(f"http://127.0.0.1:{found[1]}", "--window-size=900,880", "--lang=en-US")
        browser.open(address, model.name)
        browser.type("text", TEXT)
        browser.ask()
        time.sleep(0.5)
        picture = browser._send("GET", f"{browser._session}/screenshot")
        (ROOT / "docs/_static/server.png").write_bytes(base64.b64decode(picture))
        browser.close()
    finally:
        server.terminate()
        driver.terminate()


if __name__ == "__main__":
    main()
