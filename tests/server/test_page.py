"""The web page of the local server in headless Chromium, controlled through W3C WebDriver."""

import json
import pathlib

import pytest
import tensorflow as tf

from keras_bert.server import models
from tests import served
from tests.server.test_app import call, serving
from tests.webdriver import browsing

pytestmark = pytest.mark.browser

HEADS = ("classification", "tagging", "reader", "blanks")
EVIL = "<img src=x onerror=\"document.title='broken into'\">"


@pytest.fixture(scope="module")
def browser(driver):
    with browsing(driver, "--accept-lang=en-US") as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of exported heads, and of functions with the outputs of other heads."""
    folder = tmp_path_factory.mktemp("models")
    for name in HEADS:
        served.head(name, folder / name)
    pathlib.Path(folder, "classification/1/assets/labels.txt").write_text(
        f"bad\n{EVIL}\n좋음\n", encoding="utf-8"
    )

    def vectors(text):
        size = tf.cast(tf.strings.length(text), tf.float32)
        return {"embedding": tf.stack([size, -size, tf.ones_like(size), 0 * size], axis=1)}

    def choices(text, choices):
        sizes = tf.cast(tf.strings.length(choices), tf.float32)
        probabilities = sizes / tf.reduce_sum(sizes, axis=1, keepdims=True)
        return {"choice": tf.argmax(sizes, axis=1), "probabilities": probabilities}

    def pairs(text, text_pair):
        sizes = tf.strings.length(text) - tf.strings.length(text_pair)
        return {"score": tf.cast(sizes, tf.float32) / 4}

    def sets(text):
        size = tf.cast(tf.strings.length(text), tf.float32)
        probabilities = tf.stack([size / 10, size / 100, size / 12], axis=1)
        return {"probabilities": probabilities, "chosen": probabilities >= 0.5}

    def own(x):
        return {"evil": tf.strings.as_string(x) + EVIL, "nan": x / 0.0}

    several = tf.TensorSpec([None, None], tf.string, name="choices")
    numbers = tf.TensorSpec([None, 2], tf.float32, name="x")
    for name, function in {
        "vectors": served.function(vectors, "text"),
        "choices": served.function(choices, "text", several),
        "pairs": served.function(pairs, "text", "text_pair"),
        "sets": served.function(sets, "text"),
        "own": served.function(own, numbers),
    }.items():
        served.save(tf.Module(), folder / name / "1", function)
    return folder


@pytest.fixture(scope="module")
def port(folder):
    with serving(models.find(folder), timeout=30) as port:
        yield port


@pytest.fixture
def page(browser, port):
    """Return a function that opens the page of a model; fail on console messages."""
    yield lambda model: browser.open(f"http://127.0.0.1:{port}/", model)
    assert browser.console_messages() == []
    assert "broken" not in browser.run("return document.title")


def predict(port, model, row):
    """Return the prediction of the REST API."""
    return call(port, f"/v1/models/{model}:predict", {"instances": [row]})[1]["predictions"][0]


def part(text, start, end):
    return text.encode()[start:end].decode()


def percent(value):
    return f"{100 * value:.1f}%"


@pytest.mark.slow
def test_labels_and_probabilities(browser, page, port):
    page("classification")
    assert browser.run("return document.title") == "classification · keras_bert"
    assert browser.texts("#version") == ["version 1"]
    text = f"so good {EVIL} 한국어"
    browser.type("text", text)
    answer = browser.ask()
    expected = predict(port, "classification", text)
    order = sorted(range(3), key=lambda index: -expected["probabilities"][index])
    labels = ["bad", EVIL, "좋음"]
    assert browser.texts("#answer dt") == [labels[index] for index in order]
    shares = [percent(expected["probabilities"][index]) for index in order]
    assert browser.texts("#answer dd.number") == shares
    assert answer.startswith(expected["label"])
    widths = browser.run(
        "return [...document.querySelectorAll('#answer i')].map(e => "
        "e.getBoundingClientRect().width / e.parentElement.getBoundingClientRect().width)"
    )
    for index, width in zip(order, widths, strict=True):
        assert width == pytest.approx(expected["probabilities"][index], abs=0.02)
    # Markup in a label is shown as text.
    assert browser.texts("#answer img") == []


def test_multi_label(browser, page):
    page("sets")
    browser.type("text", "a film")
    assert browser.ask().startswith("0, 2")
    assert browser.texts("#answer dt") == ["0", "2", "1"]
    assert browser.texts("#answer dt.first") == ["0", "2"]
    assert browser.texts("#answer dd.number") == ["60.0%", "50.0%", "6.0%"]
    browser.type("text", "a")
    assert browser.ask().startswith("No label.")


def test_tags_are_at_their_byte_offsets(browser, page, port):
    page("tagging")
    text = "한국어 film 😀 <b>so</b> bad!"
    browser.type("text", "x")
    browser.run("document.querySelector('#in-text').value = arguments[0]", text)
    browser.ask()
    expected = predict(port, "tagging", text)
    spans = []
    for word in range(expected["count"]):
        mark, name = expected["tag"][word].split("-")
        bounds = expected["start"][word], expected["end"][word]
        if mark == "I" and spans and spans[-1][2] == name:
            spans[-1] = (spans[-1][0], bounds[1], name)
        else:
            spans.append((*bounds, name))
    marks = [f"{part(text, start, end)}{name}" for start, end, name in spans]
    assert len(marks) > 1 and browser.texts("#answer mark") == marks
    # Without the tag names, the answer is the unchanged text.
    names = "for (const sub of document.querySelectorAll('#answer sub')) sub.remove();"
    assert browser.run(names + "return document.querySelector('#answer').textContent") == text


def test_answer_is_highlighted_in_its_context(browser, page, port):
    page("reader")
    assert browser.texts("label") == ["Question", "Text that contains the answer"]
    question, context = "is so", "한국어 film is so good! <i>bad</i>"
    browser.type("question", question)
    browser.type("context", context)
    browser.ask()
    expected = predict(port, "reader", {"question": question, "context": context})
    found = part(context, expected["start"], expected["end"])
    assert found and browser.texts("#answer .main") == [found]
    assert browser.texts("#answer mark") == [found + percent(expected["score"])]
    browser.type("context", " ")
    assert browser.ask().startswith("The text does not contain an answer.")


def test_masked_tokens_are_filled(browser, page, port):
    page("blanks")
    text = "this [MASK] is <b>[MASK]!"
    browser.type("text", text)
    browser.ask()
    expected = predict(port, "blanks", text)
    first = [candidates[0] for candidates in expected["candidates"]]
    assert browser.texts("#answer .text") == [f"this {first[0]} is <b>{first[1]}!"]
    assert browser.texts("#answer mark") == first
    assert browser.texts("#answer dt") == [*expected["candidates"][0], *expected["candidates"][1]]
    assert browser.texts("#answer h2") == ["[MASK] 1", "[MASK] 2"]
    browser.type("text", "no blank")
    assert browser.ask() == "There is no [MASK] in the text."


def test_embeddings_are_drawn_and_compared(browser, page):
    page("vectors")
    browser.type("text", "aa")
    assert "4 numbers: 2.000, -2.000, 1.000, 0.000" in browser.ask()
    assert len(browser.texts("#answer svg path")) == 1
    browser.type("other", "a")
    # (2, -2, 1, 0) and (1, -1, 1, 0)
    assert browser.ask().startswith("0.962Similarity (cosine)")
    assert len(browser.texts("#answer svg path")) == 2


def test_choices_are_one_per_line(browser, page):
    page("choices")
    browser.type("text", "which")
    browser.type("choices", f"a\n\n{EVIL}\nbb\n")
    assert browser.ask().startswith(EVIL)
    assert browser.texts("#answer dt") == [EVIL, "bb", "a"]


def test_model_with_other_inputs_takes_json(browser, page):
    page("own")
    request = browser.run("return document.querySelector('#in-request').value")
    assert json.loads(request) == {"instances": [{"x": [0, 0]}]}
    # 0 / 0 is NaN, which browsers cannot parse: the page shows the raw response.
    assert "NaN" in browser.ask() and EVIL.replace('"', '\\"') in browser.ask()
    browser.type("request", '{"instances": [{"y": 1}]}')
    assert "of the signature" in browser.ask()
    (message,) = browser.console_messages()
    assert "400" in message


def test_keyboard_shortcut_and_list_of_models(browser, page):
    page("pairs")
    assert browser.run("return document.activeElement.id") == "in-text"
    browser.do(f"element/{browser.find('#in-text')}/value", text="aaaa\ue009\ue006\ue000")
    assert browser.wait(lambda: browser.texts("#answer")[0]) == "1.000"
    browser.do(f"element/{browser.find('option[value=vectors]')}/click")
    browser.wait(lambda: browser.texts("#title") == ["vectors"])
    assert browser.texts("#answer") == [""]


def test_every_field_has_a_label(browser, page):
    for model in ("classification", "reader", "choices", "vectors", "own"):
        page(model)
        names = browser.run(
            "return [...document.querySelectorAll('textarea, select')]"
            ".map(e => e.labels[0]?.textContent || e.getAttribute('aria-label'))"
        )
        assert len(names) > 1 and all(names)


def test_korean_browser_shows_korean(driver, port):
    with browsing(driver, "--accept-lang=ko-KR") as browser:
        browser.open(f"http://127.0.0.1:{port}/", "pairs")
        assert browser.texts("label") == ["텍스트", "두 번째 텍스트"]
        assert browser.texts("#ask") == ["물어보기"]
        assert browser.run("return document.documentElement.lang") == "ko"
        assert "TensorFlow Serving" in browser.texts("footer")[0]


def test_stopped_server(browser, folder):
    with serving(models.find(folder / "pairs")) as port:
        browser.open(f"http://127.0.0.1:{port}/", "pairs")
    assert browser.ask() == "The server does not respond."
    assert browser.texts("#answer [role=alert]") == ["The server does not respond."]
    browser.console_messages()  # discard the message about the refused connection
