"""Checkpoints and encoders of the Model Garden."""

import dataclasses
import json

import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import bundle, canonical, model_garden
from tests import damage
from tests.checkpoints import tensorflow_files

tf = pytest.importorskip("tensorflow")
objects = pytest.importorskip("tests.garden_objects")

H, V = objects.SIZES["hidden_size"], objects.SIZES["vocab_size"]
CONFIG = {
    **objects.SIZES, "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.4,
    "initializer_range": 0.5, "layer_norm_eps": 1e-12, "embedding_size": None,
    "pooler_act": "tanh",
}  # fmt: skip


def save(path, name="bert_model.ckpt", config=True, **saved):
    if config:
        objects.write_config(path)
    tf.train.Checkpoint(**saved).write(str(path / name))
    return path


def test_read(tmp_path):
    encoder = objects.Maker().encoder()
    checkpoint = checkpoints.read(save(tmp_path, model=encoder))
    assert checkpoint.format == "model_garden"
    assert checkpoint.path == str(tmp_path)
    assert checkpoint.spec.vocabulary == objects.VOCABULARY
    assert checkpoint.spec.head.labels is None
    assert checkpoint.spec.tokenizer["lowercase"] is True
    stated = {"hidden_act": "gelu_new", "hidden_dropout_prob": 0.2}
    assert checkpoint.spec.encoder == objects.SIZES | canonical.DEFAULTS | stated
    objects.assert_same(checkpoint.weights, objects.expected(encoder))


@pytest.mark.parametrize("by_hand", [False, True])
def test_functional_encoder_without_attributes(tmp_path, by_hand):
    maker = objects.Maker(by_hand=by_hand, named=False)
    encoder = maker.functional_encoder(attributes=False)
    path = save(tmp_path, model=encoder)
    keys = bundle.read(bundle.find(path)).shapes
    assert "model/layer_with_weights-1/embeddings/.ATTRIBUTES/VARIABLE_VALUE" in keys
    objects.assert_same(checkpoints.read(path).weights, objects.expected(encoder))


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("as_items", [False, True])
def test_a_pretrainer(tmp_path, functional, as_items):
    maker = objects.Maker()
    encoder = maker.functional_encoder() if functional else maker.encoder()
    head = maker.classification_head()
    pretrainer = maker.pretrainer(encoder, [head])
    saved = objects.items(pretrainer) if as_items else {"model": pretrainer}
    weights = checkpoints.read(save(tmp_path, **saved)).weights
    expected = objects.expected(encoder, pretrainer.masked_lm, head)
    if as_items:  # the items do not include the last layer of the head
        del expected["next_sentence/kernel"], expected["next_sentence/bias"]
    objects.assert_same(weights, expected)
    np.testing.assert_array_equal(weights["pooler/dense/kernel"], head.dense.kernel)


def test_optimizer_state_is_ignored(tmp_path):
    maker = objects.Maker()
    encoder = maker.encoder()
    slot = tf.Variable([1.0])
    optimizer = objects.tree(iter=tf.Variable(3), beta_1=tf.Variable(0.9), _variables=[slot])
    encoder.optimizer = optimizer
    objects.write_config(tmp_path)
    checkpoint = tf.train.Checkpoint(
        model=encoder, optimizer=optimizer, global_step=tf.Variable(3), **{"_optimizer": optimizer}
    )
    checkpoint.save(str(tmp_path / "ckpt"))
    keys = bundle.read(bundle.find(tmp_path)).shapes
    assert "save_counter/.ATTRIBUTES/VARIABLE_VALUE" in keys
    objects.assert_same(checkpoints.read(tmp_path).weights, objects.expected(encoder))


@pytest.mark.parametrize("name", ["extra", "my_optimizer"])
def test_unknown_tensors_are_errors(tmp_path, name):
    encoder = objects.Maker().encoder()
    setattr(encoder, name, objects.tree(kernel=tf.Variable([1.0])))
    save(tmp_path, model=encoder)
    with pytest.raises(
        ValueError, match=rf"bert_model.ckpt: .*unknown \(1\): model/{name}/kernel/"
    ):
        checkpoints.read(tmp_path, needs_head=False)


def test_an_unknown_head_is_left_out(tmp_path):
    encoder = objects.Maker().encoder()
    head = objects.tree(kernel=tf.Variable([1.0]))
    save(tmp_path, model=objects.tree(encoder=encoder, chain=head))
    with pytest.raises(ValueError, match=r"unknown \(1\): model/chain/kernel/.*without task"):
        checkpoints.read(tmp_path)
    with pytest.warns(UserWarning, match="its head is left out: .*model/chain/kernel"):
        found = checkpoints.read(tmp_path, needs_head=False)
    objects.assert_same(found.weights, objects.expected(encoder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 2}, r"unknown \(16\): encoder/_transformer_layers/2/"),
        ({"num_attention_heads": 3}, r"wrong shape \(21\): .*\(expected \(6, 3, 2\), found"),
        ({"vocab_size": 12}, "vocab_size must be at most 11"),
    ],
)
def test_config_that_does_not_match(tmp_path, change, message):
    save(tmp_path, model=objects.Maker().encoder())
    objects.write_config(tmp_path, **change)
    with pytest.raises(ValueError, match=rf"bert_model.ckpt: .*{message}"):
        checkpoints.read(tmp_path)


def test_shared_variables_are_errors(tmp_path):
    encoder = objects.Maker().encoder()
    first, second, _ = encoder._transformer_layers
    encoder._transformer_layers = [first, second, first]  # like ALBERT
    with pytest.raises(ValueError, match=r"not shared; shared \(16\): model/_transformer"):
        checkpoints.read(save(tmp_path / "a", model=encoder))
    maker = objects.Maker()
    pretrainer = maker.pretrainer(maker.encoder(), [])
    other = maker.masked_lm(pretrainer.encoder_network._embedding_layer.embeddings)
    path = save(tmp_path / "b", model=pretrainer, masked_lm=other)
    with pytest.raises(ValueError, match=r"not shared; several \(5\): masked_lm/dense"):
        checkpoints.read(path)


def test_no_encoder_or_two(tmp_path):
    with pytest.raises(ValueError, match="bert_model.ckpt: must hold a BERT encoder .*received v/"):
        checkpoints.read(save(tmp_path / "a", v=tf.Variable([1.0])))
    with pytest.raises(ValueError, match="a BERT encoder .*received no variables"):
        checkpoints.read(save(tmp_path / "b"))
    two = {"left": objects.Maker().encoder(), "right": objects.Maker().functional_encoder()}
    with pytest.raises(ValueError, match="bert_model.ckpt: must hold one BERT encoder, received 2"):
        checkpoints.read(save(tmp_path / "c", **two))


def test_factorized_embeddings_are_an_error(tmp_path):
    maker = objects.Maker()
    encoder = maker.functional_encoder(attributes=False)
    layers = [getattr(encoder, f"layer_with_weights-{i}") for i in range(8)]
    layers.insert(4, maker.dense("embedding_projection", (H, H), (H,)))
    encoder = objects.tree(**{f"layer_with_weights-{i}": layer for i, layer in enumerate(layers)})
    with pytest.raises(ValueError, match=r"unknown \(2\): model/layer_with_weights-4/bias"):
        checkpoints.read(save(tmp_path, model=encoder), needs_head=False)


def test_object_based_and_name_based_checkpoints(tmp_path):
    save(tmp_path, model=objects.Maker().encoder())
    assert checkpoints.detect(tmp_path) == "model_garden"
    tensors = dict.fromkeys(["_A", "bert/pooler/dense/bias"], np.zeros(H, "float32"))
    tensorflow_files.save(tmp_path / "bert_model.ckpt", **tensors)
    assert checkpoints.detect(tmp_path) == "google"
    with pytest.raises(ValueError, match="must be an object-based checkpoint"):
        model_garden.read(tmp_path)


def test_without_a_config(tmp_path):
    save(tmp_path, config=False, model=objects.Maker().encoder())
    assert checkpoints.detect(tmp_path) == "model_garden"
    with pytest.raises(FileNotFoundError, match="bert_config.json .* or params.yaml .*activation"):
        checkpoints.read(tmp_path)


def encoder_yaml(**changes):
    found = {
        "vocab_size": V,
        "hidden_size": H,
        "num_layers": 3,
        "num_attention_heads": 2,
        "hidden_activation": "gelu",
        "intermediate_size": 5,
        "dropout_rate": 0.3,
        "attention_dropout_rate": 0.4,
        "max_position_embeddings": 8,
        "type_vocab_size": 4,
        "initializer_range": 0.5,
        "embedding_size": None,
        "output_range": None,
        "return_all_encoder_outputs": False,
        "return_attention_scores": False,
        "return_word_embeddings": False,
        "norm_first": False,
    }
    return {"type": "bert", "bert": {**found, **changes}}


def test_yaml(tmp_path):
    content = {"runtime": {}, "task": {"model": {"encoder": encoder_yaml()}}}
    (tmp_path / "params.yaml").write_text(json.dumps(content))
    assert model_garden.read_config(tmp_path) == CONFIG | {"hidden_act": "gelu_new"}
    encoder = objects.Maker().encoder()
    weights = checkpoints.read(save(tmp_path, config=False, model=encoder)).weights
    objects.assert_same(weights, objects.expected(encoder))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (encoder_yaml(norm_first=True), "norm_first must be false"),
        (encoder_yaml(output_range=1), "output_range must be null"),
        (encoder_yaml(embedding_size=3), "embedding_size must be 6"),
        (encoder_yaml(hidden_activation="quick"), "hidden_act must be one of celu, .*gelu_new"),
        ({"type": "albert", "albert": {}}, "must be of type 'bert', received 'albert'"),
        ({"bert": {"vocab_size": 2}}, "missing keys"),
        (encoder_yaml(hidden_act="relu"), "keys that stand for hidden_act must"),
        ("a: 1\na: 2", "YAML in UTF-8, received a key that occurs twice"),
        ("{", "YAML in UTF-8, received while"),
        ("\xff", "YAML in UTF-8, received .utf-8. codec"),
    ],
)
def test_invalid_yaml(tmp_path, content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "params.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"params.yaml: .*{message}") as error:
        model_garden.read_config(tmp_path)
    assert "\n" not in str(error.value)


def test_latest_checkpoint_of_a_trainer(tmp_path):
    objects.write_config(tmp_path)
    encoder = objects.Maker().encoder()
    saver = tf.train.Checkpoint(model=encoder, step=tf.Variable(0))
    saver.write(str(tmp_path / "ckpt-0"))
    other = tf.train.Checkpoint(model=objects.Maker(seed=1).encoder())
    other.save(str(tmp_path / "before"))
    state = tmp_path / "checkpoint"
    state.unlink()
    with pytest.raises(ValueError, match="must hold one checkpoint .*received before-1, ckpt-0$"):
        checkpoints.read(tmp_path)
    saver = tf.train.Checkpoint(model=encoder)
    saver.save(str(tmp_path / "ckpt"))
    assert 'model_checkpoint_path: "ckpt-1"' in state.read_text()
    objects.assert_same(checkpoints.read(tmp_path).weights, objects.expected(encoder))
    state.write_text(state.read_text().replace('"ckpt-1"', '"/on/another/machine/before-1"'))
    expected = objects.expected(other.model)
    objects.assert_same(checkpoints.read(tmp_path).weights, expected)
    state.write_bytes(b'model_checkpoint_path: "gone\xff"')
    with pytest.raises(ValueError, match="must hold one checkpoint"):
        checkpoints.read(tmp_path)
    saver.write(str(tmp_path / "bert_model.ckpt"))
    objects.assert_same(checkpoints.read(tmp_path).weights, objects.expected(encoder))


@pytest.mark.parametrize("graph", [b"\xff\xff", np.float32(1), b"\x0a\x04\x0a\x02\x08\x07"])
def test_invalid_object_graph(tmp_path, graph):
    objects.write_config(tmp_path)
    tensorflow_files.save(tmp_path / "bert_model.ckpt", **{bundle.GRAPH: tf.constant(graph)})
    with pytest.raises(ValueError, match=f"bert_model.ckpt: {bundle.GRAPH} must "):
        checkpoints.read(tmp_path)


def tanh_gelu(x):
    return tf.nn.gelu(x, approximate=True)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [(tanh_gelu, "gelu_new"), (tf.nn.gelu, "gelu"), (tf.nn.relu, "relu")],
)
def test_from_encoder(activation, expected):
    encoder = objects.Maker().encoder_in_memory(activation)
    checkpoint = model_garden.from_encoder(encoder)
    assert checkpoint.spec.encoder == CONFIG | {"hidden_act": expected}
    assert checkpoint.spec.vocabulary is None
    objects.assert_same(checkpoint.weights, objects.expected(encoder))


def test_to_encoder():
    checkpoint = model_garden.from_encoder(objects.Maker().encoder_in_memory(tanh_gelu))
    other = objects.Maker(seed=1).encoder_in_memory(tanh_gelu)
    assert model_garden.to_encoder(checkpoint, other) is other
    objects.assert_same(model_garden.from_encoder(other).weights, dict(checkpoint.weights))
    heads = {"masked_lm/output_bias": np.ones(V), "classifier/bias": np.ones(2)}
    with_heads = dataclasses.replace(checkpoint, weights={**checkpoint.weights, **heads})
    other = objects.Maker(seed=2).encoder_in_memory(tanh_gelu)
    model_garden.to_encoder(with_heads, other)  # heads are ignored
    objects.assert_same(model_garden.from_encoder(other).weights, dict(checkpoint.weights))


@pytest.mark.parametrize(
    ("config", "weights", "message"),
    [
        ({"hidden_act": "relu"}, {}, r"different \(1\): hidden_act \(expected 'relu', found"),
        ({"type_vocab_size": 2}, {}, r"different \(1\): type_vocab_size \(expected 2, found 4"),
        ({"layer_norm_eps": 1e-5}, {}, r"different \(1\): layer_norm_eps"),
        ({}, {"pooler/dense/bias": None}, r"missing \(1\): encoder/_pooler_layer/bias"),
        ({}, {"layer_3/output/bias": np.ones(H)}, r"unsupported \(1\): layer_3/output/bias"),
    ],
)
def test_failed_to_encoder_assigns_nothing(config, weights, message):
    found = model_garden.from_encoder(objects.Maker().encoder_in_memory(tanh_gelu))
    weights = {
        name: array for name, array in {**found.weights, **weights}.items() if array is not None
    }
    spec = dataclasses.replace(found.spec, encoder={**found.spec.encoder, **config})
    checkpoint = dataclasses.replace(found, spec=spec, weights=weights)
    other = objects.Maker(seed=1).encoder_in_memory(tanh_gelu)
    before = objects.expected(other)
    with pytest.raises(ValueError, match=message):
        model_garden.to_encoder(checkpoint, other)
    objects.assert_same(model_garden.from_encoder(other).weights, before)


@pytest.mark.parametrize(
    ("activation", "options", "message"),
    [
        (tanh_gelu, {"norm_first": True}, "norm_first must be false"),
        (tanh_gelu, {"output_range": 1}, "output_range must be null"),
        (tanh_gelu, {"embedding_width": 2}, "embedding_width must be 6"),
        (tf.nn.swish, {}, "inner_activation must be one of gelu, gelu_new, relu, received"),
    ],
)
def test_from_encoder_rejects_other_models(activation, options, message):
    encoder = objects.Maker().encoder_in_memory(activation, **options)
    with pytest.raises(ValueError, match=f"Module: {message}"):
        model_garden.from_encoder(encoder)


def test_fuzz(tmp_path):
    maker = objects.Maker(vocab_size=11)
    save(tmp_path, model=maker.pretrainer(maker.encoder(), [maker.classification_head()]))
    (tmp_path / "vocab.txt").unlink()
    files = [file for file in tmp_path.iterdir() if file.suffix != ".json"]
    damage.check(files, lambda: dict(model_garden.read(tmp_path).weights), times=100)
