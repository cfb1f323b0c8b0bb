"""SavedModels of TF-Hub and Kaggle."""

import re

import numpy as np
import pytest

import keras_bert
from keras_bert import checkpoints
from keras_bert.checkpoints import canonical, saved_model
from tests import damage

tf = pytest.importorskip("tensorflow")
objects = pytest.importorskip("tests.garden_objects")


@pytest.fixture
def no_execution(monkeypatch):
    """Fail if TensorFlow loads a SavedModel."""

    def load(*args, **options):
        raise AssertionError("a SavedModel was loaded")

    for module in (tf.saved_model, tf.compat.v1.saved_model, tf.__internal__):
        for name in ("load", "load_v2", "loader"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, load)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A SavedModel and its arrays."""
    maker = objects.Maker()
    encoder = maker.functional_encoder()
    masked_lm = maker.masked_lm(encoder._embedding_layer.embeddings)
    path = objects.save_model(tmp_path_factory.mktemp("hub") / "1", encoder, masked_lm)
    return path, objects.expected(encoder, masked_lm)


def test_read(made, no_execution):
    path, expected = made
    checkpoint = checkpoints.read(path)
    assert checkpoint.format == "saved_model"
    assert checkpoint.path == str(path)
    assert checkpoint.spec.encoder == objects.SIZES | canonical.DEFAULTS | {
        "hidden_act": "gelu_new"
    }
    assert checkpoint.spec.vocabulary == objects.VOCABULARY
    assert checkpoint.spec.head.labels is None
    assert checkpoint.spec.tokenizer == {
        "lowercase": True,
        "strip_accents": True,
        "split_cjk": True,
        "sequence_length": None,
    }
    objects.assert_same(checkpoint.weights, expected)


@pytest.mark.parametrize("lowercase", [True, False, None])
def test_casing(tmp_path, lowercase):
    value = None if lowercase is None else tf.Variable(lowercase, trainable=False)
    encoder = objects.Maker().encoder()
    path = objects.save_model(tmp_path / "1", encoder, do_lower_case=value)
    tokenizer = checkpoints.read(path).spec.tokenizer
    assert tokenizer["lowercase"] is tokenizer["strip_accents"] is (lowercase is not False)
    (path / "assets/vocab.txt").write_text("\n".join([*objects.VOCABULARY[:-1], "Paris"]))
    assert checkpoints.read(path).spec.tokenizer["lowercase"] is (lowercase is True)


def test_without_a_vocabulary(tmp_path):
    path = objects.save_model(tmp_path / "1", objects.Maker().encoder(), vocab_file=None)
    assert checkpoints.read(path).spec.vocabulary is None


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("gelu", "gelu"),
        ("gelu of 2020", "gelu"),
        ("gelu_new", "gelu_new"),
        ("relu", "relu"),
        ([], None),
        (["gelu", "relu"], None),
    ],
)
def test_activation_is_inferred_from_ops(tmp_path, ops, expected):
    path = objects.save_model(tmp_path / "1", objects.Maker().encoder(), activation=ops)
    assert checkpoints.read(path).spec.encoder["hidden_act"] == expected
    if expected is None:
        with pytest.raises(ValueError, match="does not show which activation.*hidden_act="):
            keras_bert.load(path)
        with pytest.raises(ValueError, match="does not show which activation"):
            keras_bert.convert(path, tmp_path / "there", format="google")
        assert keras_bert.load(path, hidden_act="tanh").get_config()["hidden_act"] == "tanh"


@pytest.mark.parametrize("masked_lm", [False, True])
@pytest.mark.parametrize("names", ["2020", "now"])
def test_variables_without_attributes(tmp_path, names, masked_lm):
    maker = objects.Maker(by_hand=names != "now")
    encoder = maker.functional_encoder(attributes=False) if names != "now" else maker.encoder()
    expected = objects.expected(encoder)
    variables = list(encoder.variables)
    if masked_lm:
        head = maker.masked_lm(tf.Variable(0.0), scope="")
        variables += [*head.dense.variables, *head.layer_norm.variables, head.bias]
        layers = objects.expected(objects.Maker().encoder(), head)
        expected |= {name: layers[name] for name in layers if name.startswith("masked_lm/")}
    path = objects.save_model(tmp_path / "1", None, variables=variables)
    objects.assert_same(checkpoints.read(path).weights, expected)


def test_unknown_variables_are_errors(tmp_path):
    encoder = objects.Maker().encoder()
    path = objects.save_model(tmp_path / "a", encoder, extra=tf.Variable([1.0]))
    with pytest.raises(
        ValueError, match=r"variables/variables: .*unknown \(1\): extra/.ATTRIBUTES"
    ):
        checkpoints.read(path)
    path = objects.save_model(tmp_path / "b", None, variables=[tf.Variable([1.0])])
    with pytest.raises(ValueError, match="variables/variables: must hold a BERT encoder"):
        checkpoints.read(path)


def test_kernel_of_the_wrong_rank(tmp_path):
    encoder = objects.Maker().encoder()
    kernel = encoder._transformer_layers[0]._attention_layer._query_dense
    kernel.kernel = tf.Variable(np.ones((6, 6), "float32"))
    path = objects.save_model(tmp_path / "1", encoder)
    with pytest.raises(ValueError, match="wrong shape"):
        checkpoints.read(path)


@pytest.mark.parametrize("place", ["saved_model.pb", "keras_metadata.pb"])
def test_norm_first_is_an_error(tmp_path, place):
    """The variables do not depend on norm_first."""
    path = objects.save_model(tmp_path / "1", objects.Maker().encoder())
    with (path / place).open("ab") as file:  # field 15 is unknown
        file.write(b'\x7a\x14{"norm_first": true}')
    with pytest.raises(ValueError, match=f"{place}: norm_first must be false"):
        checkpoints.read(path)


def test_missing_files(made):
    path, _ = made
    for name in (
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "saved_model.pb",
    ):
        file = path / name
        content = file.read_bytes()
        file.unlink()
        try:
            with pytest.raises(FileNotFoundError, match=re.escape(name)):
                saved_model.read(path)
        finally:
            file.write_bytes(content)


def test_a_graph_of_many_messages_is_not_parsed(made, no_execution):
    """A node without content takes two bytes, and after parsing, a hundred times as many."""
    file = made[0] / "saved_model.pb"
    content = file.read_bytes()
    try:
        file.write_bytes(content + b"\x12\x00" * 4_000_000)
        with pytest.raises(ValueError, match="must be a SavedModel, received .* fields"):
            checkpoints.read(made[0])
    finally:
        file.write_bytes(content)


def test_fuzz(made, no_execution):
    path, _ = made
    files = [path / "saved_model.pb", *(path / "variables").iterdir(), path / "assets/vocab.txt"]
    damage.check(files, lambda: dict(saved_model.read(path).weights), times=100)
