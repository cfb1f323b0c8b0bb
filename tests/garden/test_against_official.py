"""What the formats read, against the library that writes them; `make test-older` runs it.

Each check has an encoder of the Model Garden with random weights compute something, and ours, from
the files that theirs were saved in, compute the same.
"""

import json
import re

import numpy as np
import pytest

pytest.importorskip("official.nlp.modeling", reason="tf-models-official is not installed")
import tensorflow as tf
import tf_keras
from official.legacy.bert import configs
from official.modeling import activations
from official.nlp.configs import encoders
from official.nlp.modeling import layers, models, networks
from official.nlp.tools import export_tfhub_lib

import keras_bert
from keras_bert import checkpoints
from keras_bert.checkpoints import bundle, model_garden
from keras_bert.hub import conversion
from tests import garden_objects

TOLERANCE = 1e-5
SIZES = {
    "vocab_size": 37,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 11,
    "type_vocab_size": 16,
}
CLASSES = {"V1": networks.BertEncoder, "V2": networks.BertEncoderV2}
ACTIVATIONS = {"gelu": activations.gelu, "relu": tf_keras.activations.relu}
ENCODERS = pytest.mark.parametrize("kind", CLASSES)


def make(kind, activation="gelu", **changes):
    sizes = {**SIZES, **changes}
    options = {"dict_outputs": True} if kind == "V1" else {}
    encoder = CLASSES[kind](
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"],
        max_sequence_length=sizes["max_position_embeddings"],
        type_vocab_size=sizes["type_vocab_size"],
        inner_dim=sizes["intermediate_size"],
        inner_activation=ACTIVATIONS.get(activation, activation),
        **options,
    )
    encoder(encoder.inputs)
    return randomize(encoder)


def randomize(model, seed=0):
    """Weights that make a mix-up of any two of them visible: biases and gammas too."""
    random = np.random.default_rng(seed)
    for variable in model.variables:
        value = random.normal(0.5 if "gamma" in variable.name else 0, 0.5, variable.shape)
        variable.assign(value)
    return model


def make_pretrainer(kind="V2", activation="gelu"):
    head = layers.ClassificationHead(
        inner_dim=SIZES["hidden_size"], num_classes=2, name="next_sentence"
    )
    pretrainer = models.BertPretrainerV2(
        make(kind, activation), mlm_activation=ACTIVATIONS[activation], classification_heads=[head]
    )
    pretrainer(inputs(masked_lm_positions=True))
    return randomize(pretrainer)


def inputs(masked_lm_positions=False):
    random = np.random.default_rng(1)
    shape = (4, 9)
    mask = np.ones(shape, "int32")
    mask[1, 5:] = mask[2, 1:] = 0
    found = {
        "input_word_ids": random.integers(0, SIZES["vocab_size"], shape).astype("int32"),
        "input_mask": mask,
        "input_type_ids": random.integers(0, SIZES["type_vocab_size"], shape).astype("int32"),
    }
    if masked_lm_positions:
        found["masked_lm_positions"] = random.integers(0, 9, (4, 3)).astype("int32")
    return found


def folder(path, activation="gelu", **saved):
    path.mkdir(exist_ok=True)
    (path / "bert_config.json").write_text(json.dumps({**SIZES, "hidden_act": activation}))
    tf.train.Checkpoint(**saved).save(str(path / "bert_model.ckpt"))
    return path


def assert_close(found, expected, what):
    difference = float(np.max(np.abs(np.asarray(found) - np.asarray(expected))))
    print(f"{what}: {difference:.1e}")
    assert difference < TOLERANCE, (what, difference)


def assert_encoders_agree(ours, theirs):
    found, expected = ours(inputs()), theirs(inputs())
    for key in ("sequence_output", "pooled_output"):
        assert_close(found[key], expected[key], key)
    for pair in zip(found["encoder_outputs"], expected["encoder_outputs"], strict=True):
        assert_close(*pair, "encoder_outputs")


@pytest.mark.parametrize(
    ("name", "activation"), [("model", "gelu"), ("encoder", "relu"), ("", "gelu")]
)
@ENCODERS
def test_encoders(tmp_path, kind, activation, name):
    theirs = make(kind, activation)
    path = folder(tmp_path, activation, **{name: theirs})
    assert checkpoints.detect(path) == "model_garden"
    assert_encoders_agree(keras_bert.load(path), theirs)


@ENCODERS
def test_weights_saved_by_keras(tmp_path, kind):
    theirs = make(kind)
    path = folder(tmp_path)
    for file in path.glob("bert_model*"):
        file.unlink()
    inside = tf_keras.Model(theirs.inputs, theirs(theirs.inputs))
    model = inside if kind == "V2" else theirs  # a V2 is a layer, which cannot save itself
    model.save_weights(str(path / "bert_model.ckpt"), save_format="tf")
    assert_encoders_agree(keras_bert.load(path), theirs)


@ENCODERS
def test_a_config_of_the_trainer(tmp_path, kind):
    yaml = pytest.importorskip("yaml")
    theirs = make(kind)
    path = folder(tmp_path, model=theirs)
    (path / "bert_config.json").unlink()
    parts = {
        "num_layers": SIZES["num_hidden_layers"],
        **{key: size for key, size in SIZES.items() if key != "num_hidden_layers"},
    }
    config = encoders.EncoderConfig(type="bert", bert=encoders.BertEncoderConfig(**parts))
    params = {"task": {"model": {"encoder": config.as_dict()}}, "trainer": {"train_steps": 5}}
    (path / "params.yaml").write_text(yaml.dump(params))
    assert_encoders_agree(keras_bert.load(path), theirs)


@pytest.mark.parametrize(
    ("kind", "optimizer", "activation"),
    [
        ("V1", tf_keras.optimizers.AdamW, "relu"),
        ("V2", tf_keras.optimizers.legacy.Adam, "gelu"),
        ("V2", tf_keras.optimizers.AdamW, "relu"),
    ],
)
def test_pretrainers(tmp_path, kind, optimizer, activation):
    theirs = make_pretrainer(kind, activation)
    with tf.GradientTape() as tape:
        outputs = theirs(inputs(masked_lm_positions=True))
        loss = tf.reduce_mean(outputs["mlm_logits"]) + tf.reduce_mean(outputs["next_sentence"])
    gradients = zip(
        tape.gradient(loss, theirs.trainable_variables), theirs.trainable_variables, strict=True
    )
    optimizer = optimizer(1e-3)
    optimizer.apply_gradients([pair for pair in gradients if pair[0] is not None])
    steps = optimizer.iterations
    path = folder(tmp_path, activation, model=theirs, optimizer=optimizer, global_step=steps)
    assert_pretrainers_agree(path, theirs)


def assert_pretrainers_agree(path, theirs, next_sentence=True):
    expected = theirs(inputs(masked_lm_positions=True))
    encoder = keras_bert.load(path)
    assert_close(encoder(inputs())["sequence_output"], expected["sequence_output"], "sequence")
    ours = keras_bert.load(path, task="masked_tokens")
    assert_close(ours(inputs(True)), expected["mlm_logits"], "mlm")
    head = theirs.classification_heads[0]
    pooled = head(expected["sequence_output"], only_project=True)
    assert_close(encoder(inputs())["pooled_output"], pooled, "pooled by the head")
    if next_sentence:
        ours = keras_bert.load(path, task="next_sentence")
        assert_close(ours(inputs()), expected["next_sentence"], "next sentence")


@ENCODERS
def test_items_of_a_pretrainer(tmp_path, kind):
    """They leave out the last layer of the head, and hold its pooler."""
    theirs = make_pretrainer(kind)
    path = folder(tmp_path, **theirs.checkpoint_items)
    assert_pretrainers_agree(path, theirs, next_sentence=False)
    with pytest.raises(ValueError, match="next_sentence"):
        keras_bert.load(path, task="next_sentence")


def test_fine_tuned_models(tmp_path):
    for use_encoder_pooler in (True, False):
        theirs = randomize(
            models.BertClassifier(make("V2"), 5, use_encoder_pooler=use_encoder_pooler)
        )
        path = folder(tmp_path / f"classifier {use_encoder_pooler}", model=theirs)
        ours = keras_bert.load(path, task="classification")
        assert_close(ours(inputs()), theirs(inputs()), "classification")
    theirs = randomize(models.BertTokenClassifier(make("V2"), 5))
    ours = keras_bert.load(folder(tmp_path / "tagging", model=theirs), task="tagging")
    assert_close(ours(inputs()), theirs(inputs())["logits"], "tagging")
    theirs = randomize(models.BertSpanLabeler(make("V2")))
    ours = keras_bert.load(folder(tmp_path / "spans", model=theirs), task="question_answering")
    found = ours(inputs())
    found = list(found.values()) if isinstance(found, dict) else found
    valid = inputs()["input_mask"] == 1  # ours hides the padding
    for one, other in zip(found, theirs(inputs()), strict=True):
        assert_close(np.asarray(one)[valid], np.asarray(other)[valid], "spans")


# TF-Hub ----------------------------------------------------------------------------------------


def bert_config(activation):
    found = configs.BertConfig(vocab_size=SIZES["vocab_size"])
    for key, value in {**SIZES, "hidden_act": activation, "embedding_size": None}.items():
        setattr(found, key, value)
    return found


@pytest.fixture
def vocabulary(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += [f"w{number}" for number in range(SIZES["vocab_size"] - len(pieces))]
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(pieces) + "\n")
    return str(file)


@pytest.mark.parametrize(
    ("activation", "with_mlm", "lowercase"),
    [("gelu", True, True), ("relu", False, False)],
)
def test_hub(tmp_path, vocabulary, activation, with_mlm, lowercase):
    theirs = make("V1", activation)
    saved = {"model": theirs, "encoder": theirs}
    if with_mlm:
        pretrainer = models.BertPretrainerV2(theirs, mlm_activation=ACTIVATIONS[activation])
        pretrainer(inputs(masked_lm_positions=True))
        saved = randomize(pretrainer).checkpoint_items
    path = tmp_path / "hub"
    export_tfhub_lib.export_model(
        str(path),
        bert_config=bert_config(activation),
        model_checkpoint_path=str(tf.train.Checkpoint(**saved).save(str(tmp_path / "ckpt"))),
        with_mlm=with_mlm,
        vocab_file=vocabulary,
        do_lower_case=lowercase,
    )
    found = checkpoints.read(path)
    assert found.format == "saved_model"
    assert found.spec.encoder == {
        **SIZES,
        **checkpoints.canonical.DEFAULTS,
        "hidden_act": "gelu_new" if activation == "gelu" else activation,
    }
    assert found.spec.tokenizer["lowercase"] is lowercase
    assert found.spec.vocabulary[:2] == ["[PAD]", "[UNK]"]
    hub = tf.saved_model.load(str(path))
    assert_encoders_agree(keras_bert.load(path), hub)
    if with_mlm:
        ours = keras_bert.load(path, task="masked_tokens")(inputs(True))
        assert_close(ours, hub.mlm(inputs(True))["mlm_logits"], "mlm of the hub")


def test_hub_of_an_encoder_with_attributes_and_the_pooler_of_a_head(tmp_path, vocabulary):
    """As a BertEncoderV2 is exported, with the flag that copies the pooler."""
    theirs = make_pretrainer("V1")
    parts = {"num_layers": SIZES["num_hidden_layers"], "hidden_activation": "gelu"}
    parts |= {key: size for key, size in SIZES.items() if key != "num_hidden_layers"}
    saved = tf.train.Checkpoint(**theirs.checkpoint_items).save(str(tmp_path / "ckpt"))
    path = tmp_path / "hub"
    export_tfhub_lib.export_model(
        str(path),
        encoder_config=encoders.EncoderConfig(
            type="bert", bert=encoders.BertEncoderConfig(**parts)
        ),
        model_checkpoint_path=str(saved),
        with_mlm=True,
        copy_pooler_dense_to_encoder=True,
        vocab_file=vocabulary,
        do_lower_case=True,
    )
    assert_pretrainers_agree(path, theirs, next_sentence=False)


def test_a_saved_model_of_the_second_encoder(tmp_path):
    theirs = make("V2", tf_keras.activations.gelu)  # by the error function
    model = tf_keras.Model(theirs.inputs, theirs(theirs.inputs))
    model.save(str(tmp_path / "hub"), save_format="tf", include_optimizer=False)
    found = checkpoints.read(tmp_path / "hub")
    assert found.spec.encoder["hidden_act"] == "gelu"
    assert_encoders_agree(keras_bert.load(tmp_path / "hub"), theirs)


# In memory -------------------------------------------------------------------------------------


def test_of_an_encoder_that_was_not_called_yet():
    theirs = networks.BertEncoderV2(9, 4, 1, 2, max_sequence_length=4, inner_dim=3)
    assert model_garden.from_encoder(theirs).spec.encoder["intermediate_size"] == 3


@ENCODERS
def test_there_and_back_bit_for_bit(kind):
    theirs = make(kind)
    checkpoint = model_garden.from_encoder(theirs)
    before = {variable.name: variable.numpy() for variable in theirs.variables}
    ours = conversion.from_checkpoint(checkpoint)
    back = conversion.to_checkpoint(ours)
    other = randomize(make(kind), seed=5)
    assert model_garden.to_encoder(back, other) is other
    for variable, original in zip(other.variables, before.values(), strict=True):
        np.testing.assert_array_equal(variable.numpy(), original)
    new = model_garden.to_encoder(back)
    assert isinstance(new, networks.BertEncoderV2)
    for (name, original), variable in zip(before.items(), new.variables, strict=True):
        np.testing.assert_array_equal(variable.numpy(), original, err_msg=name)
    assert_encoders_agree(ours, new)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_ours_as_theirs(activation):
    ours = keras_bert.BertEncoder(**SIZES, hidden_act=activation, initializer_range=0.3)
    assert_encoders_agree(ours, model_garden.to_encoder(conversion.to_checkpoint(ours)))


# The trees that the ordinary tests use ----------------------------------------------------------


def keys_and_names(path, ignored=()):
    tensors = bundle.read(bundle.find(path))
    return sorted(
        (node.key, node.name, tensors.shapes[node.key])
        for node in bundle.read_graph(tensors)
        if node.key is not None and not node.key.startswith(ignored)
    )


@pytest.mark.parametrize("what", ["V1", "V2", "pretrainer", "items"])
def test_the_objects_of_the_ordinary_tests_are_like_the_real_ones(tmp_path, what):
    maker = garden_objects.Maker("bert_encoder_v2/" if what != "V1" else "", **SIZES)
    if what in CLASSES:
        real = {"model": make(what)}
        like = {"model": maker.encoder() if what == "V2" else maker.functional_encoder()}
    else:
        pretrainer = make_pretrainer()
        encoder = maker.encoder()
        copy = maker.pretrainer(encoder, [maker.classification_head()])
        real, like = {"model": pretrainer}, {"model": copy}
        if what == "items":
            real, like = pretrainer.checkpoint_items, garden_objects.items(copy)
    (tmp_path / "real").mkdir()
    (tmp_path / "like").mkdir()
    tf.train.Checkpoint(**real).write(str(tmp_path / "real/ckpt"))
    tf.train.Checkpoint(**like).write(str(tmp_path / "like/ckpt"))
    found, expected = keys_and_names(tmp_path / "like"), keys_and_names(tmp_path / "real")
    for one, other in zip(found, expected, strict=True):
        # A second encoder in one process has a number after its name.
        name = re.sub(r"^bert_encoder_v2_\d+/", "bert_encoder_v2/", other[1])
        assert one == (other[0], name, other[2])


def test_the_saved_models_of_the_ordinary_tests_are_like_the_real_ones(tmp_path, vocabulary):
    theirs = make("V1")
    pretrainer = models.BertPretrainerV2(theirs, mlm_activation=activations.gelu)
    pretrainer(inputs(masked_lm_positions=True))
    saved = tf.train.Checkpoint(**pretrainer.checkpoint_items).save(str(tmp_path / "ckpt"))
    real = tmp_path / "real"
    export_tfhub_lib.export_model(
        str(real), bert_config=bert_config("gelu"), model_checkpoint_path=str(saved),
        with_mlm=True, vocab_file=vocabulary, do_lower_case=True)  # fmt: skip
    maker = garden_objects.Maker(**SIZES)
    encoder = maker.functional_encoder()
    masked_lm = maker.masked_lm(encoder._embedding_layer.embeddings)
    like = garden_objects.save_model(tmp_path / "like", encoder, masked_lm)

    def names(path):
        return sorted(name for _, name, _ in keys_and_names(path / "variables"))

    assert names(like) == names(real)
    for key in ("variables/0", "do_lower_case"):
        for path in (real, like):
            keys = [key for key, _, _ in keys_and_names(path / "variables")]
            assert f"{key}/.ATTRIBUTES/VARIABLE_VALUE" in keys
