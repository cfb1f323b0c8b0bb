"""Tests of the model card, parsed as Markdown and run as Python."""

import dataclasses
import pathlib
import re

import huggingface_hub
import keras
import markdown_it
import pytest

import keras_bert
from keras_bert import heads, provenance
from keras_bert.exporting import export as export_module
from keras_bert.exporting import model_card
from keras_bert.exporting.model_card import ModelInfo
from keras_bert.hub import resolve
from keras_bert.model_spec import HeadSpec
from keras_bert.tasks import registry
from tests import served, tiny

TENSORS = [("input", "text", "string", ["batch"]), ("output", "score", "float32", ["batch"])]


def table(card, title):
    """The rows of the table under a title, as the text that a reader sees."""
    tokens = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(card)
    rows, is_inside = [], False
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            is_inside = tokens[index + 1].content.replace("`", "") == title
        if is_inside and token.type == "tr_open":
            rows.append([])
        if (
            is_inside
            and token.type == "inline"
            and tokens[index - 1].type in ("td_open", "th_open")
        ):
            kinds = {child.type for child in token.children}
            assert kinds <= {"text", "code_inline", "text_special"}
            rows[-1].append("".join(child.content for child in token.children))
    return rows[1:]


CLASSES = HeadSpec("classification")


def render(info):
    info = dataclasses.replace(info, parameters=1)
    return model_card.render("stars", info, {"Graph": TENSORS}, "no files", "")


def read(folder):
    return (folder / model_card.CARD_FILE).read_text(encoding="utf-8")


def run_example(card):
    """Run the Python example of a card in the current folder; returns its variables."""
    [code] = re.findall(r"```python\n(.*?)```", card, re.S)
    values: dict = {}
    exec(code, values)
    return values


def test_long_lists_of_labels_are_shortened():
    labels = [str(n) for n in range(20_000)]
    card = render(ModelInfo(HeadSpec("classification", labels=labels)))
    assert len(card) < 5000
    assert len(table(card, "Labels")) == 60 and "and 19,940 more" in card


def test_metrics_and_license():
    """The metrics do not show folders."""
    metrics = {
        "model": "/home/me/secret/bert", "train": "C:\\me\\train.tsv", "dev": "hf:some/data",
        "accuracy": 0.912345, "f1": float("nan"), "best_epoch": 2, "history": [{"loss": 1}],
        "train_seconds": 3.0, "a|b": "x|y",
    }  # fmt: skip
    assert table(render(ModelInfo(CLASSES, metrics=metrics)), "Metrics") == [
        ["started from", "bert"], ["trained on", "train.tsv"], ["evaluated on", "hf:some/data"],
        ["accuracy", "0.9123"], ["f1", "nan"], ["best_epoch", "2"], ["a|b", "x|y"],
    ]  # fmt: skip
    card = render(ModelInfo(CLASSES))
    assert "Not recorded" in card and "unknown" in card
    assert huggingface_hub.ModelCard(card).data.license is None
    card = render(ModelInfo(CLASSES, license="Apache-2.0", metrics={"model": "minilm"}))
    assert "(minilm): Apache-2.0." in card
    assert huggingface_hub.ModelCard(card).data.license == "apache-2.0"


@pytest.mark.parametrize("task", registry.TASKS, ids=str)
def test_every_head_has_a_description(task):
    output = heads.TaskOutput(task.name)
    card = render(ModelInfo(output))
    assert task.describe(output) in card
    assert huggingface_hub.ModelCard(card).data.pipeline_tag == task.hub_tag
    assert all(row[-1] for row in table(card, "Graph"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with exported models of each kind."""
    folder = tmp_path_factory.mktemp("models")
    encoder = tiny.encoder(num_hidden_layers=1)
    keras_bert.export(served.HEADS["tagging"](encoder), folder / "tagging")
    classifier = heads.classifier(encoder, labels=["좋음", "a|b"], pairs=True)
    keras_bert.export(
        classifier, folder / "한국 {}", metrics={"accuracy": 0.5}, license="Apache-2.0"
    )
    keras_bert.export(encoder, folder / "pair", license="MIT")
    text = keras.Input(shape=(), dtype="string", name="text")
    stars = keras.Input(shape=(3,), name="stars")
    logits = keras.layers.Dense(2, name="answer")(stars)
    keras_bert.export(keras.Model([text, stars], logits), folder / "own")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tagging", "한국 {}", "pair/preprocess", "pair/encoder", "own"])
def test_card_describes_the_saved_model_and_its_example_runs(folder, name, monkeypatch):
    monkeypatch.chdir(folder / name)
    card = read(folder / name)
    assert huggingface_hub.ModelCard(card).text.startswith(f"\n# {name.split('/')[-1]}\n")
    values = run_example(card)
    assert all(value.shape[0] == 1 for value in values["answers"].values())
    expected = values["served"].structured_input_signature[1] | values["answers"]
    rows = table(card, "Signature serving_default")
    assert {row[1]: row[2] for row in rows} == {k: v.dtype.name for k, v in expected.items()}
    for row in [*rows, *table(card, "Signature ids")]:
        # An empty meaning is a name that the table of meanings lacks.
        assert len(row) == 5 and all(row[: 4 if name == "own" else 5])


@pytest.mark.parametrize(
    ("task", "long_texts", "words"),
    [
        ("classification", "window", "overlapping windows"),
        ("classification", "truncate", "truncated"),
        ("tagging", "truncate", "split into windows"),
    ],
)
def test_the_card_says_what_happens_to_long_texts(task, long_texts, words):
    info = ModelInfo(HeadSpec(task, long_texts=long_texts), max_sequence_length=24)
    assert words in render(info)


@pytest.mark.slow
def test_facts_about_the_model(folder):
    card = read(folder / "한국 {}")
    rows = dict(table(card, "Model"))
    assert rows["longest input"].startswith("32 tokens") and rows["size of the files"]
    assert int(rows["parameters"].replace(",", "")) > 100
    assert table(card, "Labels") == [["0", "좋음"], ["1", "a|b"]]
    assert table(card, "Metrics") == [["accuracy", "0.5"]]
    assert "windows" in read(folder / "tagging")
    assert "MIT" in read(folder / "pair" / "encoder")
    assert "## Metrics" not in read(folder / "pair" / "preprocess")


FUNCTIONS = {"serving_default": served.function(lambda text: {"y": text}, "text")}


def test_card_follows_the_versions_until_the_user_edits_it(tmp_path):
    folder = tmp_path / "model"

    def save(version):
        (folder / version).mkdir(parents=True)
        return model_card.write(folder / version, ModelInfo(), FUNCTIONS)

    assert save("1") and "version 1." in read(folder)
    assert save("2") and "version 2." in read(folder)
    file = folder / model_card.CARD_FILE
    # Other line endings do not count as edits.
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert save("3") and "version 3." in read(folder)
    edited = read(folder).replace("version 3", "my version")
    file.write_text(edited)
    assert not save("4")
    assert read(folder) == edited
    file.write_bytes(b"\xff mine")
    assert not save("5")
    file.unlink()
    file.mkdir()
    assert not save("6")
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.fixture
def info_of(monkeypatch):
    """A function that returns the facts that `export` writes on the card, without the export."""
    written = []
    monkeypatch.setattr(export_module, "_write", lambda folder, job: written.append(job))

    def info(model, export=keras_bert.export, **options):
        export(*[model] * (export is keras_bert.export), "unused", **options)
        job = written[-1]
        return ModelInfo(CLASSES, metrics=job.metrics, license=job.license)

    return info


@pytest.fixture
def minilm(tmp_path, monkeypatch):
    """A folder that `load` finds by the name "minilm"."""
    folder = tmp_path / "start"
    keras_bert.save(tiny.encoder(num_hidden_layers=1), folder)
    find = resolve.find
    monkeypatch.setattr(resolve, "find", lambda name: folder if name == "minilm" else find(name))
    return folder


@pytest.mark.slow
def test_card_of_a_finetuned_model(minilm, info_of, tmp_path):
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\nso good\tgood\nso bad\tbad\n")
    encoder = keras_bert.load("minilm")
    assert info_of(encoder).license == "Apache-2.0" and info_of(encoder).metrics is None
    data = keras_bert.read(rows)
    model, metrics = keras_bert.finetune(encoder, data, data, epochs=1, show_progress=False)
    files = {"model": "minilm", "train": rows.name, "dev": rows.name}
    for export in (keras_bert.export, keras_bert.pipeline(model).export):
        info = info_of(model, export)
        assert (info.metrics, info.license) == ({**files, **metrics}, "Apache-2.0")
        info = info_of(model, export, metrics={"a": 1}, license="MIT")
        assert (info.metrics, info.license) == ({"a": 1}, "MIT")
        assert info_of(model, export, metrics={}).metrics == {}
    # A model that is trained further, in place.
    model, metrics = keras_bert.finetune(model, data, epochs=1, show_progress=False)
    del files["dev"]
    assert info_of(model).metrics == {**files, **metrics}
    model.weights[-1].assign(model.weights[-1] + 1)
    assert (info_of(model).metrics, info_of(model).license) == (None, "Apache-2.0")


def test_card_of_a_loaded_file(minilm, info_of, tmp_path):
    model = heads.classifier(keras_bert.load("minilm"), labels=["no", "yes"])
    metrics = {"model": "minilm", "train": "한국어.tsv", "accuracy": 0.5, "loss": float("nan")}
    provenance.remember_metrics(model, metrics)
    keras_bert.save(model, tmp_path / "mine.keras")
    info = info_of(keras_bert.load(tmp_path / "mine.keras"))
    assert (info.metrics, info.license) == ({**metrics, "loss": None}, None)
    keras.saving.load_model(tmp_path / "mine.keras")
    provenance.write_metrics(tmp_path, {"accuracy": 0.9})  # of another model
    keras_bert.save(model, tmp_path / "model.keras")
    assert info_of(keras_bert.load(tmp_path)).metrics == {**metrics, "loss": None}
    model.weights[-1].assign(model.weights[-1] + 1)
    keras_bert.save(model, tmp_path / "mine.keras")
    assert info_of(keras_bert.load(tmp_path / "mine.keras")).metrics is None


def test_card_of_a_loaded_run(minilm, info_of, tmp_path):
    folder, metrics = tmp_path / "run", {"model": "minilm", "train": "a.tsv", "accuracy": 0.5}
    keras_bert.save(heads.classifier(keras_bert.load("minilm"), labels=["no", "yes"]), folder)
    assert info_of(keras_bert.load(folder)).metrics is None
    provenance.write_metrics(folder, metrics)
    for name in (folder, str(folder / "model.keras")):
        info = info_of(keras_bert.load(name))
        assert (info.metrics, info.license) == (metrics, None)
        assert "(minilm): Apache-2.0, if the name in the metrics is true" in render(info)
    again = keras_bert.load(folder, task="classification", fresh_head=True, labels=["a", "b"])
    assert (info_of(again).metrics, info_of(again).license) == (None, None)
    (folder / "model.keras").rename(folder / "other.keras")
    assert info_of(keras_bert.load(folder / "other.keras")).metrics is None


def test_the_metrics_of_a_stranger_give_no_license_and_no_path(info_of, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    outside = tmp_path / "outside"
    keras_bert.save(heads.classifier(tiny.encoder(num_hidden_layers=1), labels=["a", "b"]), folder)
    looked_at = []
    is_dir = pathlib.Path.is_dir
    monkeypatch.setattr(pathlib.Path, "is_dir", lambda path: looked_at.append(path) or is_dir(path))
    for name in (str(outside), "~root/outside", "base", ["base"], {"base": 1}):
        provenance.write_metrics(folder, {"model": name, "accuracy": 0.9})
        info = info_of(keras_bert.load(folder))
        assert info.license is None
        assert "license: apache" not in render(info)
    assert not [path for path in looked_at if "outside" in str(path)]


@pytest.mark.parametrize("content", ["broken", "[1]", "[" * 100_000, "\xff"])
def test_broken_metrics_do_not_stop_load(minilm, info_of, content):
    (minilm / provenance.METRICS_FILE).write_text(content, encoding="latin-1")
    info = info_of(keras_bert.load(minilm))
    assert (info.metrics, info.license) == (None, None)


def test_names_of_data_files_can_hold_commas():
    model = heads.embedder(tiny.encoder(pooling="mean"))
    sets = [
        keras_bert.EmbeddingExamples([("a", "b")], source=f"data/{name}")
        for name in ("c, d.tsv", "e")
    ]
    several = keras_bert.EmbeddingExamples.of_sets(sets)
    provenance.remember_run(model, model, several, sets[0], {"f1": 1.0})
    metrics, _ = provenance.known_metrics_and_license(model)
    assert metrics == {"train": "c, d.tsv, e", "dev": "c, d.tsv", "f1": 1.0}


def test_copies_of_an_encoder_keep_its_license(minilm):
    encoder = keras_bert.load("minilm")
    for copy in (encoder, encoder.with_options(hidden_dropout_prob=0.0), encoder.keep_layers([0])):
        _, license = provenance.known_metrics_and_license(heads.classifier(copy, 2))
        assert license == "Apache-2.0"


@pytest.mark.parametrize("name", ["word_embeddings", "pooler", "lora_kernel_b", "logits"])
def test_metrics_are_of_all_weights(name):
    model = heads.classifier(tiny.encoder(num_hidden_layers=1), labels=["no", "yes"])
    heads.find_encoder(model).enable_lora(rank=2)
    provenance.remember_metrics(model, {"accuracy": 0.5})
    assert provenance.known_metrics_and_license(model)[0] == {"accuracy": 0.5}
    weight = next(each for each in model.weights if name in each.path and len(each.shape) == 2)
    weight.assign(weight + 1.0)
    assert provenance.known_metrics_and_license(model)[0] is None
