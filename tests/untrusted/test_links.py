"""Links in the folder of a model."""

import os
import time

import huggingface_hub
import pytest

import keras_bert
from keras_bert import checkpoints, provenance
from keras_bert.exporting.graph_folder import GraphFile
from keras_bert.exporting.graph_predictor import GraphPredictor
from keras_bert.pretraining import corpus, records
from keras_bert.runtime import budget
from keras_bert.tasks.embedding import retrieval
from keras_bert.training import run_state
from keras_bert.untrusted import links
from tests import tiny
from tests.machine import slowness


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "private" / "secret.txt"
    file.parent.mkdir()
    file.write_text("my password\n")
    return file


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    keras_bert.save(tiny.encoder(num_hidden_layers=1), folder, format="huggingface")
    return folder


def convert(folder):
    keras_bert.convert(folder, folder.parent / "converted", format="google")


def refused(folder, name):
    with pytest.raises(ValueError, match="must stay inside.*cp -rL") as caught:
        links.check(folder)
    assert str(folder / name) in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name", ["vocab.txt", "a/b/c/d/e/config.json", ".x/MODEL.BIN", "corpus.tsv", "notes"]
)
def test_a_link_to_a_file_outside_is_refused(tmp_path, secret, name):
    link = tmp_path / "model" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(os.path.relpath(secret, link.parent))
    refused(tmp_path / "model", name)


def test_links_to_folders_and_missing_files_are_refused(tmp_path, secret):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "1_Pooling").symlink_to(secret.parent)
    refused(folder, "1_Pooling")
    (folder / "1_Pooling").unlink()
    (folder / "vocab.txt").symlink_to(tmp_path / "appears later")
    refused(folder, "vocab.txt")
    (folder / "vocab.txt").unlink()
    (folder / "inner").symlink_to(secret.parent)
    (folder / "vocab.txt").symlink_to("inner/secret.txt")
    with pytest.raises(ValueError, match="must stay inside"):
        links.check(folder)


def test_a_folder_with_a_similar_name_is_outside(tmp_path):
    write_file(tmp_path / "model-2" / "a.txt", "")
    link(tmp_path / "model" / "vocab.txt", "../model-2/a.txt")
    refused(tmp_path / "model", "vocab.txt")


def test_other_links_are_allowed(tmp_path, secret):
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "tokens").write_text("[PAD]\n")
    (folder / "vocab.txt").symlink_to("inner/tokens")
    (folder / "last").symlink_to("inner")
    (folder / "loop.json").symlink_to("loop.json")
    (tmp_path / "link").symlink_to(folder)  # the user chose it
    links.check(folder)
    links.check(tmp_path / "link")


@pytest.mark.parametrize("cache", ["KERAS_BERT_CACHE", "KAGGLEHUB_CACHE", "Hugging Face"])
def test_links_into_a_cache_are_allowed(tmp_path, secret, monkeypatch, cache):
    link(tmp_path / "model" / "vocab.txt", secret)
    refused(tmp_path / "model", "vocab.txt")
    if cache == "Hugging Face":
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(secret.parent))
    else:
        monkeypatch.setenv(cache, str(secret.parent))
    links.check(tmp_path / "model")


@pytest.mark.parametrize("kind", ["models", "datasets"])
def test_a_snapshot_of_the_hub_is_allowed(tmp_path, secret, kind):
    """A snapshot consists of links to blobs, in any `cache_dir`."""
    repository = tmp_path / f"{kind}--org--name"
    snapshot = repository / "snapshots" / "0123abc"
    (snapshot / "1_Pooling").mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "4567").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/4567")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/4567")
    links.check(snapshot)
    (repository / "blobs" / "89ab").symlink_to(secret)
    (snapshot / "vocab.txt").symlink_to("../../blobs/89ab")
    refused(snapshot, "vocab.txt")


def test_a_large_folder_takes_no_time(tmp_path):
    for number in range(5000):
        (tmp_path / f"{number}.txt").touch()
    start = time.perf_counter()
    links.check(tmp_path)
    assert time.perf_counter() - start < 0.5 * slowness()


def test_a_link_among_too_many_files_is_not_missed(tmp_path, secret, monkeypatch):
    monkeypatch.setattr(budget, "MAX_ITEMS", 10)
    for number in range(11):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(ValueError, match="11 files, at most 10"):
        links.check(tmp_path)


def test_an_unreadable_folder_cannot_hide_a_link(tmp_path, secret):
    hidden = tmp_path / "model" / "1_Pooling"
    hidden.mkdir(parents=True)
    (hidden / "config.json").symlink_to(secret)
    hidden.chmod(0o300)
    try:
        with pytest.raises((OSError, ValueError), match="1_Pooling"):
            links.check(tmp_path / "model")
    finally:
        hidden.chmod(0o700)


# Readers


def link(file, secret):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.symlink_to(secret)


READERS = {
    "vocab.txt": [keras_bert.load, checkpoints.read, checkpoints.detect, convert],
    "model.keras": [keras_bert.load],
    "onnx/model.onnx": [
        lambda folder: GraphPredictor.open(GraphFile(folder / "onnx/model.onnx", folder))
    ],
    records.MANIFEST: [records.Records],
    run_state.STATE_FILE: [lambda folder: run_state.read(folder / run_state.STATE_FILE, "")],
    "queries.jsonl": [retrieval.read],
}


@pytest.mark.parametrize("name", READERS)
def test_readers_refuse_a_link(model, secret, name):
    link(model / name, secret)
    for read in READERS[name]:
        with pytest.raises(ValueError, match=f"{name}: a link must stay inside"):
            read(model)


@pytest.mark.parametrize("name", ["vocab.txt", "model.keras", "onnx/model.onnx", "queries.jsonl"])
def test_readers_refuse_a_link_to_nothing(model, name):
    link(model / name, "missing")
    for read in READERS[name]:
        with pytest.raises(ValueError, match=f"{name}: a link must lead to a file"):
            read(model)


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json"])
def test_a_folder_in_place_of_a_file_is_refused(model, name):
    (model / name).unlink(missing_ok=True)
    (model / name).mkdir()
    with pytest.raises(ValueError, match=f"{name} must be a file, received a folder"):
        keras_bert.load(model)
    link(model / "other", model / name)
    (model / name).rmdir()
    (model / name).symlink_to("other")
    with pytest.raises(ValueError, match=f"{name} must be a file, received a broken link"):
        keras_bert.load(model)


def test_a_link_that_the_user_chose_is_followed(tmp_path):
    keras_bert.save(tiny.encoder(num_hidden_layers=1), tmp_path / "private")
    link(tmp_path / "model" / "model.keras", tmp_path / "private" / "model.keras")
    keras_bert.load(tmp_path / "model" / "model.keras")


def test_metrics_of_a_link_are_not_read(tmp_path):
    (tmp_path / "private.json").write_text('{"password": "1234"}')
    link(tmp_path / "model" / "metrics.json", tmp_path / "private.json")
    assert provenance.read_metrics(tmp_path / "model") == {}


def write_file(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_pipes_are_refused(tmp_path):
    os.mkfifo(tmp_path / "train-00000.tfrecord")
    with pytest.raises(ValueError, match=r"\.tfrecord: must be a file or a folder"):
        links.check(tmp_path)
    with pytest.raises(ValueError, match=r"\.tfrecord: must be a file or a folder"):
        links.check_file(tmp_path / "train-00000.tfrecord")


@pytest.mark.parametrize("pattern", ["", "*", "**/*.txt"])
@pytest.mark.parametrize("name", ["a.txt", "inner"])
def test_a_corpus_with_a_link_is_refused(tmp_path, secret, pattern, name):
    folder = tmp_path / "corpus"
    write_file(folder / "b.txt", "Text.")
    target = secret.parent if name == "inner" else secret
    (folder / name).symlink_to(target)
    with pytest.raises(ValueError, match=f"{name}.*must stay inside.*as a path of the corpus"):
        corpus.files(folder / pattern)


def test_links_that_are_paths_of_the_corpus_are_followed(tmp_path, secret):
    (tmp_path / "file.txt").symlink_to(secret)
    (tmp_path / "folder").symlink_to(secret.parent)
    for path in (tmp_path / "file.txt", tmp_path / "folder", tmp_path / "folder" / "*.txt"):
        assert [document.text for document in corpus.documents(path)] == ["my password"]
