"""The page of examples/browser in Chromium."""

import functools
import http.server
import pathlib
import shutil
import sys
import threading

import pytest

import keras_bert
from keras_bert import heads
from tests import tiny
from tests.webdriver import browsing

PAGE = pathlib.Path(__file__).parents[2] / "examples" / "browser" / "index.html"
MODULES = pathlib.Path(sys.prefix) / "node" / "node_modules"

pytestmark = pytest.mark.skipif(
    not MODULES.is_dir(), reason="@huggingface/transformers is not installed"
)


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def models():
    encoder = tiny.encoder(initializer_range=0.5)
    return heads.classifier(encoder, labels=["bad", "좋음"]), heads.embedder(encoder)


@pytest.fixture(scope="module")
def site(models, tmp_path_factory):
    """Serve the page with the library and two models; return the address."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(PAGE, folder)
    library = folder / "lib"
    library.mkdir()
    shutil.copy(MODULES / "@huggingface/transformers/dist/transformers.min.js", library)
    for file in (MODULES / "onnxruntime-web" / "dist").glob("ort-wasm-simd-threaded.asyncify.*"):
        shutil.copy(file, library)
    for name, model in zip(("classifier", "embedder"), models, strict=True):
        keras_bert.export(model, folder / "models" / name, format="onnx")
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def click(browser, name):
    browser.do(f"element/{browser.find(name)}/click")


def rows(browser, table):
    cells = browser.wait(lambda: browser.texts(f"{table} td"))
    return dict(zip(cells[1::2], map(float, cells[::2]), strict=True))


def test_the_page_answers_as_the_keras_models(site, models, driver):
    classify, embed = (keras_bert.pipeline(model) for model in models)
    with browsing(driver) as browser:
        browser.do("url", url=f"{site}/index.html")
        browser.wait(lambda: browser.texts("#status") == ["Ready."])
        browser.run("document.querySelector('#text').value = 'so good 국어'")
        click(browser, "#classify")
        expected = {row["label"]: row["score"] for row in classify("so good 국어", top_k=None)}
        assert rows(browser, "#labels") == pytest.approx(expected, abs=1e-4)
        texts = ["a bad film", "this is good"]
        browser.run("document.querySelector('#query').value = 'so bad'")
        browser.run("document.querySelector('#texts').value = arguments[0]", "\n".join(texts))
        click(browser, "#search")
        similarities = embed.similarity(embed.encode("so bad"), embed.encode(texts))[0]
        expected = dict(zip(texts, similarities.tolist(), strict=True))
        assert rows(browser, "#ranked") == pytest.approx(expected, abs=1e-4)
