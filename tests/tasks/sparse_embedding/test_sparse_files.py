"""Sparse embedders in files, exports and on the command line."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny
from tests.checkpoints.huggingface_files import edit_json
from tests.cli.shared import run

TEXTS = ["so good", "a film so bad is this", "!", "", "a " * 40 + "bad"]
pytestmark = pytest.mark.filterwarnings("ignore:.*texts were truncated")


@pytest.fixture(scope="module")
def model():
    """A sparse embedder with prompts, some of whose weights are 0."""
    encoder = tiny.encoder(initializer_range=0.5)
    prompts = {"query": "so ", "document": ""}
    built = heads.sparse_embedder(encoder, prompts=prompts, default_prompt="document")
    head = built.get_layer("masked_lm")
    keras.utils.set_random_seed(3)
    head.output_bias.assign(keras.random.normal(head.output_bias.shape, stddev=0.5))
    return built


def vectors(model, **options):
    return keras_bert.pipeline(model).encode(TEXTS, **options).toarray()


def test_a_sentence_transformers_folder_keeps_an_output_matrix(tmp_path):
    model = heads.sparse_embedder(tiny.encoder(initializer_range=0.5), tied=False)
    keras_bert.save(model, tmp_path / "model", format="sentence_transformers")
    loaded = keras_bert.load(tmp_path / "model", task="sparse_embedding")
    np.testing.assert_allclose(vectors(loaded), vectors(model), atol=1e-6)


@pytest.mark.parametrize(
    ("format", "head"), [("keras", heads.masked_lm), ("huggingface", heads.pretraining)]
)
def test_masked_lm_checkpoints_load_as_sparse_embedders(tmp_path, format, head):
    built = head(tiny.encoder(initializer_range=0.5))
    keras_bert.save(built, tmp_path / "model", format=format)
    loaded = keras_bert.load(tmp_path / "model", task="sparse_embedding")
    expected = heads.sparse_embedder(heads.find_encoder(built))
    old = built.get_layer("masked_lm")
    expected.get_layer("masked_lm").set_weights(old.get_weights())
    np.testing.assert_allclose(vectors(loaded), vectors(expected), atol=1e-6)


def test_checkpoints_without_the_head(tmp_path):
    keras_bert.save(tiny.encoder(), tmp_path / "encoder", format="huggingface")
    with pytest.raises(ValueError, match="must have the weights of the head sparse_embedding"):
        keras_bert.load(tmp_path / "encoder", task="sparse_embedding")
    keras_bert.save(tiny.encoder(), tmp_path / "encoder.keras")
    with pytest.raises(ValueError, match="has no head, not sparse_embedding"):
        keras_bert.load(tmp_path / "encoder.keras", task="sparse_embedding")


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("1_SpladePooling/config.json", "pooling_strategy", "sum"),
        ("1_SpladePooling/config.json", "activation_function", "log1p_relu"),
        ("config_sentence_transformers.json", "similarity_fn_name", "cosine"),
        ("config_sentence_transformers.json", "max_active_dims", 2),
    ],
)
def test_settings_that_change_the_vectors_are_errors(tmp_path, model, file, key, value):
    keras_bert.save(model, tmp_path / "model", format="sentence_transformers")
    path = tmp_path / "model" / file
    edit_json(path, **{key: value})
    with pytest.raises(ValueError, match=f"{key} .*must be .*{value}"):
        keras_bert.load(tmp_path / "model", task="auto")


@pytest.mark.peers
def test_sentence_transformers_gives_equal_vectors(tmp_path, model):
    from sentence_transformers import SparseEncoder

    keras_bert.save(model, tmp_path / "ours", format="sentence_transformers")
    theirs = SparseEncoder(str(tmp_path / "ours"), device="cpu")
    encoded = theirs.encode(TEXTS, convert_to_tensor=True)
    np.testing.assert_allclose(encoded.to_dense().numpy(), vectors(model), atol=1e-5)
    queries = theirs.encode_query(TEXTS, convert_to_tensor=True)
    expected = vectors(model, prompt="query")
    np.testing.assert_allclose(queries.to_dense().numpy(), expected, atol=1e-5)
    assert theirs.similarity_fn_name == "dot"
    theirs.save_pretrained(str(tmp_path / "theirs"))
    loaded = keras_bert.load(tmp_path / "theirs", task="auto")
    assert heads.find_task(loaded) == "sparse_embedding"
    np.testing.assert_allclose(vectors(loaded), vectors(model), atol=1e-5)


ROWS = ["query\tdocument", "good film\tso good", "bad film\tso bad", "film!\tfilms"]


def test_command_line(tmp_path, capsys, eager):
    keras_bert.save(heads.masked_lm(tiny.learner()), tmp_path / "bert.keras")
    tiny.write_file(tmp_path / "train.tsv", "\n".join([ROWS[0], *ROWS[1:] * 8]) + "\n")
    columns = ["--text", "query", "--text-pair", "document"]
    run("finetune", "--model", tmp_path / "bert.keras", "--task", "sparse_embedding",
        "--train", tmp_path / "train.tsv", *columns, "--epochs", 1, "--output", tmp_path / "sparse"
    )  # fmt: skip
    assert json.loads((tmp_path / "sparse/metrics.json").read_text())["task"] == "sparse_embedding"
    capsys.readouterr()
    run("evaluate", tmp_path / "sparse", "--input", tmp_path / "train.tsv")
    assert "document_terms" in capsys.readouterr().out


def test_labels_of_pairs_are_refused(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("query\tdocument\tlabel\ngood film\tso bad\t0\n")
    columns = {"text": "query", "text_pair": "document"}
    with pytest.raises(ValueError, match="label does not apply"):
        keras_bert.read(file, "sparse_embedding", **columns, label="label")
