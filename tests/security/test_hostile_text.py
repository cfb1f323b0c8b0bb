"""Attack: text of a model or file that is markup or terminal codes where it is shown."""

import ast
import html.parser
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import types
import warnings

import markdown_it
import numpy as np
import pytest
import yaml

import keras_bert
from keras_bert import __main__ as command_line
from keras_bert import heads
from keras_bert.checkpoints import tokenizer_config
from keras_bert.cli import writing
from keras_bert.data import tabular
from keras_bert.exporting import model_card, tf_serving
from keras_bert.inspect import drawing
from keras_bert.inspect.attention_weights import Attention
from keras_bert.inspect.integrated_gradients import Attributions
from keras_bert.pretraining import corpus
from keras_bert.runtime import terminal
from keras_bert.tasks import prediction_files
from keras_bert.tasks.embedding import retrieval
from keras_bert.tasks.multiple_choice import data as swag
from keras_bert.tasks.results import Entities, Labels, Metrics, Result, Results
from keras_bert.tasks.tagging import data as conll
from keras_bert.training import run_state
from tests import tiny
from tests.checkpoints.huggingface_files import edit_json

PACKAGE = pathlib.Path(keras_bert.__file__).parent
PAGE = PACKAGE / "server" / "page.html"
ESCAPE = "\x1b[2J\x1b]0;t\x07\u202e"
# These may be labels.
MARKUP = [
    "</script><img src=x onerror=alert(1)>",
    "a|b`c ``` # d",
    "$\\frac{1}{0}$",
    "&amp; *a* _b_ ~~c~~ \\ $1$ #",
    "[x](javascript:alert(1))",
    "[red]x[/red] [link=https://a.b]y[/link] :smile:",
    "--- {a: b} !!python/object:x",
    "'; touch x; '$(touch y)",
]
HOSTILE = [*MARKUP, ESCAPE, "a\nb\tc\r\u2028d"]


# HTML


class Reader(html.parser.HTMLParser):
    """Collects the tags and the text of HTML."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        assert not [name for name, _ in attributes if name.startswith("on")]
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


def shown_html(text):
    """Return a text as HTML shows it."""
    for char in "\x1b\x07\u202e\r\u2028":
        text = text.replace(char, ascii(char)[1:-1])
    return text


@pytest.mark.parametrize("text", HOSTILE)
def test_html(text):
    tokens = Attention([text], np.ones((1, 1, 1, 1)))
    span = {"start": 0, "end": len(text), "score": 1.0, "tag": text}
    attributions = Attributions(
        target=text, tokens=[text], scores=np.ones(1), words=[{**span, "text": text}],
        texts=(text,), position=0, logit=1.0, baseline_logit=0.0,
    )  # fmt: skip
    for content in (
        attributions._repr_html_(),
        drawing.page(text),
        tokens._repr_html_(),
        Result({"label": text, text: 1.0}, text)._repr_html_(),
        Labels([{"label": text}])._repr_html_(),
        Entities([span], text)._repr_html_(),
        Result({**span, "answer": text}, text)._repr_html_(),
        Metrics({"report": {text: {"f1": 1.0}}})._repr_html_(),
        Results([Labels([{"label": text}])])._repr_html_(),
    ):
        read = Reader(content)
        assert shown_html(text) in read.text
        assert not read.tags & {"script", "a"} and "onerror" not in str(read.tags)
        assert ("img" in read.tags) == ("base64" in content)
        assert not re.search("[\x1b\x07\u202e\u2028]", content)


def test_the_page_of_the_server_makes_no_html_from_text():
    code = PAGE.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize("text", HOSTILE)
def test_the_page_of_the_server_quotes_for_a_shell(text):
    [function] = re.findall(r"^const quoted = .*;$", PAGE.read_text(encoding="utf-8"), re.M)
    program = f"{function}\nprocess.stdout.write(quoted({json.dumps(text)}));"
    quoted = subprocess.run(["node", "-e", program], capture_output=True, check=True).stdout
    shell = subprocess.run(["sh", "-c", b"printf %s " + quoted], capture_output=True, check=True)
    assert shell.stdout.decode() == text


# Markdown and YAML


def shown_markdown(content):
    """Return the text of Markdown, and the kinds of its inline parts."""
    tokens = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(content)
    parts = [part for token in tokens for part in token.children or ()]
    assert "html_block" not in {token.type for token in tokens}
    return "".join(part.content for part in parts), {part.type for part in parts}


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown(text, tmp_path):
    output = types.SimpleNamespace(
        task=None, labels=[text], prompts={text: text}, default_prompt=text, long_texts="truncate"
    )
    metrics = {"model": text, text: text}
    info = model_card.ModelInfo(output, parameters=1, metrics=metrics, license=text)
    card = model_card.render(text, info, {}, tmp_path, "")
    header, _, body = card.removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(header)["license"] == terminal.printable(text).lower()
    shown, kinds = shown_markdown(body)
    expected = re.sub(r"[^ -~]", lambda found: ascii(found[0])[1:-1], text)
    assert shown.count(expected) >= 5
    assert kinds <= {"text", "text_special", "code_inline", "softbreak"}
    assert not re.search("[\x1b\x07\u202e\u2028]", card)


def test_readme_of_an_onnx_folder(tmp_path):
    name = "[x](javascript:alert(1)) a|b`c <img src=x> *d*"
    model = tiny.encoder(num_hidden_layers=1)
    folder = keras_bert.export(model, tmp_path / name, format="onnx")
    shown, kinds = shown_markdown((folder / "README.md").read_text(encoding="utf-8"))
    assert name in shown
    assert not kinds & {"link_open", "html_inline", "em_open"}


@pytest.mark.parametrize("name", [*HOSTILE, "\x9b\x7f"])
def test_compose_file_and_curl(tmp_path, name):
    folder = tmp_path / name.replace("/", "_")
    folder.mkdir()
    tf_serving.write_settings(folder, [tf_serving.tf.TensorSpec([None], "string", "text")])
    content = (folder / "compose.yaml").read_text(encoding="utf-8")
    assert terminal.printable_lines(content) == content
    service = yaml.safe_load(content)["services"]["serving"]
    assert service["volumes"][0]["target"].replace("$$", "$") == f"/models/{folder.name}"


# Tables


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_a_text_stays_in_its_cell(text, name):
    rows = list(prediction_files.table_lines(name, ["x", "y"], [[text, text]]))
    row = rows[-1]
    if name == "a.tsv":
        assert len(row.splitlines()) == 1 and len(row.split("\t")) == 2
    elif name == "a.jsonl":
        assert json.loads(row) == {"x": text, "y": text}
    else:
        assert row.count('"') % 2 == 0


# Figures


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\n" not in text])
def test_figures_show_text_literally(text):
    figure = drawing.plot_weights([text, text], np.ones((2, 2)), "title")
    figure.set_size_inches(30, 30)
    figure.canvas.draw()
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == [re.sub("[\x1b\x07\u202e]", "?", text)] * 2


# Terminals


def test_only_one_function_prints():
    """`terminal.print_line` escapes."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        if "print(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                found.add(file.relative_to(PACKAGE).as_posix())
    # inference.py prints predictions, which are data unless stdout is a terminal.
    assert found == {"cli/writing.py", "runtime/terminal.py"}


@pytest.mark.parametrize("text", HOSTILE)
def test_print_line(text, capsys):
    terminal.print_line(text)
    terminal.print_line(text, sys.stderr)
    out, err = capsys.readouterr()
    assert out == err
    assert not re.search("[\x1b\x07\u202e\r\u2028]", out)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("text", HOSTILE)
def test_spinners_and_bars_take_no_markup(text, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    with terminal.waiting(text, stream):
        pass
    assert terminal.printable(text) in stream.getvalue()
    assert "\x1b]0;t" not in stream.getvalue()
    monkeypatch.setattr("sys.stderr", Terminal())
    with terminal.progress("{task.fields[loss]}") as bar:
        bar.add_task("[red]x[/red]", total=2, loss="[link=a]b[/link]")
    shown = sys.stderr.getvalue()
    assert "[red]x[/red]" in shown and "[link=a]b[/link]" in shown


def test_predictions_on_a_terminal_and_in_a_file():
    line = f"good\t0.5\t{ESCAPE}"
    on_terminal, in_file = Terminal(), io.StringIO()
    for stream in (on_terminal, in_file):
        writing.Stream(stream).write(line)
    assert in_file.getvalue() == line + "\n"
    assert on_terminal.getvalue() == "good\t0.5\t\\x1b[2J\\x1b]0;t\\x07\\u202e\n"


def test_tokens_of_a_vocabulary(tmp_path, capsys):
    vocabulary = [ESCAPE if token == "film" else token for token in tiny.PIECES]
    preprocessor = keras_bert.Preprocessor(vocabulary, sequence_length=8)
    encoder = tiny.encoder(preprocessor=preprocessor, num_hidden_layers=1)
    keras_bert.save(heads.masked_lm(encoder), tmp_path / "model.keras")
    model = str(tmp_path / "model.keras")
    assert command_line.main(["fill", model, "so [MASK]", "--top", "15"]) == 0
    output = capsys.readouterr().out
    assert r"\x1b[2J" in output and not set(output) & set(ESCAPE[:1] + "\x07\u202e")


def test_warnings_and_errors_of_the_command_line(capsys):
    with command_line._plain_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"a file has {ESCAPE}", stacklevel=1)
        assert "\x1b" not in capsys.readouterr().err
        warnings.warn("a" * 10**6, stacklevel=1)
    assert len(capsys.readouterr().err) < 3000
    for error in (ValueError(ESCAPE), RuntimeError(ESCAPE), OSError(2, "no", ESCAPE)):
        assert command_line._message(error).isprintable()
    for error in (ValueError("a" * 10**6), RuntimeError("a" * 10**6)):
        assert len(command_line._message(error)) < 3000


def test_metrics_of_a_file():
    shown = terminal.metrics_table({ESCAPE: 1.0, "a": ESCAPE + "\n"})
    assert len(shown.splitlines()) == 2 and "\x1b" not in shown


# Errors


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("modules.json", {"type": f"sentence_transformers.models.{ESCAPE}"}),
        ("config_sentence_transformers.json", {"prompts": {ESCAPE: "a"}}),
        ("config_sentence_transformers.json", {"similarity_fn_name": ESCAPE}),
        (
            "config_sentence_transformers.json",
            {"prompts": {"a": "b"}, "default_prompt_name": ESCAPE},
        ),
        ("config.json", {"hidden_act": ESCAPE}),
    ],
)
def test_errors_quote_files_escaped(file, changes, tmp_path):
    folder = tmp_path / "st"
    keras_bert.save(tiny.embedder("cls"), folder, format="sentence_transformers")
    if file == "modules.json":
        modules = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps([modules[0] | changes, *modules[1:]]))
    else:
        edit_json(folder / file, **changes)
    # An unknown key of config.json is a warning, which is an error in the tests.
    with pytest.raises((ValueError, UserWarning), match=r"\\x1b\[2J") as caught:
        keras_bert.load(folder, task="embedding")
    assert str(caught.value).isprintable()


def test_readers_limit_the_values_that_they_quote():
    for name in ("checkpoints", "data", "pretraining", "text", "untrusted"):
        for file in (PACKAGE / name).rglob("*.py"):
            quoted = re.findall(r"\{[^{}]*!r\}", file.read_text(encoding="utf-8"))
            assert not quoted, f"{file}: give {quoted[0]} a limit, as in {{value!r:.80}}"


TWO_KEYS = json.dumps({ESCAPE: 1, "b" * 1000: 2})
CHOICE = json.dumps({"text": "a", "choices": ["b", "c"], "label": [ESCAPE * 1000]})
# Name of a file, its content, and a reader of its folder.
WRONG_FILES = [
    (
        "tokenizer_config.json",
        json.dumps({"do_lower_case": ESCAPE * 1000}),
        lambda folder: tokenizer_config.read(folder),
    ),
    ("a.jsonl", TWO_KEYS, lambda folder: list(corpus.documents(folder))),
    (f"{ESCAPE}.txt", "a", lambda folder: list(corpus.documents(folder))),
    (f"qrels/{ESCAPE}.tsv", "a", retrieval.read),
    ("a.jsonl", TWO_KEYS, lambda folder: tabular.read(folder / "a.jsonl", text="text")),
    ("a.jsonl", TWO_KEYS, lambda folder: conll.read(folder / "a.jsonl")),
    ("a.csv", f"{ESCAPE},{'b' * 1000}\n1,2\n", lambda folder: conll.read(folder / "a.csv")),
    ("a.jsonl", CHOICE, lambda folder: swag.read(folder / "a.jsonl")),
]


@pytest.mark.parametrize(("name", "content", "read"), WRONG_FILES)
def test_errors_of_readers_are_short_and_printable(name, content, read, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert_short_and_printable(read, tmp_path)


def assert_short_and_printable(call, *arguments):
    with pytest.raises((ValueError, OSError)) as caught:
        call(*arguments)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


def test_errors_of_values_are_short_and_printable():
    settings = {ESCAPE: 1, "b" * 1000: 2}
    assert_short_and_printable(run_state.check_settings, "a file", settings, {}, "start anew")
    assert_short_and_printable(keras_bert.Preprocessor, [*tiny.PIECES, "b\r" * 10**4])
    encoder = tiny.encoder(num_hidden_layers=1)
    labels = ["b" * 10**4] * 2
    assert_short_and_printable(lambda: heads.classifier(encoder, labels=labels))
