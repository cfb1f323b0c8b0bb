"""KerasHub: presets in both directions, and models in memory."""

import json
import shutil

import h5py
import keras
import numpy as np
import pytest
import scipy.special

import keras_bert
from keras_bert import checkpoints
from keras_bert.hub import conversion
from tests import damage, tiny

keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)

numpy = keras.ops.convert_to_numpy
CONFIG = {
    "vocabulary_size": len(tiny.PIECES),
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "dropout": 0.2,
    "max_sequence_length": 16,
    "num_segments": 3,
}


def make(kind, dtype="float32", **task_options):
    """Return a model of KerasHub with random weights, and its tokenizer."""
    keras.utils.set_random_seed(3)
    model = backbone = keras_hub.models.BertBackbone(**CONFIG, dtype=dtype)
    tokenizer = keras_hub.tokenizers.BertTokenizer(
        vocabulary=tiny.PIECES, lowercase=True, strip_accents=True
    )
    if kind != "backbone":
        name = "".join(part.title() for part in kind.split("_")).replace("Lm", "LM")
        name = name.replace("Classifier", "TextClassifier")
        preprocessor = getattr(keras_hub.models, f"Bert{name}Preprocessor")(
            tokenizer, sequence_length=10
        )
        options = {
            "classifier": {"num_classes": 3},
            "text_embedder": {"pooling_mode": "cls", "normalize": False},
        }.get(kind, {})
        model = getattr(keras_hub.models, f"Bert{name}")(
            backbone, preprocessor=preprocessor, **options, **task_options
        )
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) / 4)
    return model, tokenizer


KINDS = ["backbone", "classifier", "masked_lm", "text_embedder"]


@pytest.fixture(scope="module", params=KINDS)
def preset(request, tmp_path_factory):
    """Kind, model, and the folder in which KerasHub saved the model."""
    model, tokenizer = make(request.param)
    folder = tmp_path_factory.mktemp("preset")
    model.save_to_preset(folder)
    if request.param == "backbone":
        tokenizer.save_to_preset(folder)
    return request.param, model, folder


def inputs():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, len(tiny.PIECES), (3, 9))
    mask = (np.arange(9) < np.array([[9], [5], [1]])).astype(int)
    return ids, mask, rng.integers(0, 3, (3, 9)) * mask


def outputs(kind, model):
    """Return the outputs of a model of either library as a list of arrays."""
    ids, mask, types = inputs()
    is_keras_bert = hasattr(model, "input") and "input_word_ids" in model.input
    names = ("input_word_ids", "input_mask", "input_type_ids")
    if not is_keras_bert:
        names = ("token_ids", "padding_mask", "segment_ids")
    given = dict(zip(names, (ids, mask, types), strict=True))
    positions = np.tile(np.arange(9), (3, 1))
    if kind == "masked_lm":
        given |= {"masked_lm_positions" if is_keras_bert else "mask_positions": positions}
    found = model(given)
    if kind == "backbone":
        found = [found["sequence_output"] * mask[..., None], found["pooled_output"]]
    return [numpy(array) for array in keras.tree.flatten(found)]


def test_read_presets_of_keras_hub(preset):
    kind, original, folder = preset
    model = keras_bert.load(folder, task="auto")
    # The head of KerasHub's masked LM has exact gelu, its backbone has tanh gelu.
    tolerance = 5e-3 if kind == "masked_lm" else 1e-5
    for found, expected in zip(outputs(kind, model), outputs(kind, original), strict=True):
        assert np.ptp(expected) > 0.1
        np.testing.assert_allclose(found, expected, atol=tolerance)
    preprocessor = keras_bert.heads.find_encoder(model).preprocessor
    assert preprocessor.vocabulary == tuple(tiny.PIECES)
    assert preprocessor.lowercase and preprocessor.strip_accents and preprocessor.split_cjk
    assert preprocessor.max_sequence_length == (16 if kind == "backbone" else 10)


def test_a_classifier_with_a_softmax_gives_its_probabilities(tmp_path):
    original, _ = make("classifier", activation="softmax")
    original.save_to_preset(tmp_path)
    (logits,) = outputs("classifier", keras_bert.load(tmp_path, task="auto"))
    (expected,) = outputs("classifier", original)
    np.testing.assert_allclose(scipy.special.softmax(logits, axis=-1), expected, atol=1e-6)


def test_weights_in_bfloat16_are_read(tmp_path):
    original, _ = make("classifier", dtype="bfloat16")
    original.save_to_preset(tmp_path)
    model = keras_bert.load(tmp_path, task="auto")
    assert {str(weight.dtype) for weight in model.weights} == {"float32"}
    encoder = keras_bert.heads.find_encoder(model)
    for found, expected in zip(
        encoder.get_layer("pooler").dense.weights,
        original.backbone.get_layer("pooled_dense").weights,
        strict=True,
    ):
        np.testing.assert_array_equal(found, numpy(keras.ops.cast(expected, "float32")))


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_quantized_weights_are_named(tmp_path):
    model, _ = make("backbone")
    model.quantize("int8")
    model.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="received 'int8'.* before `quantize`") as caught:
        keras_bert.load(tmp_path)
    assert "ignore" not in str(caught.value)


def test_keras_hub_reads_written_presets(preset, tmp_path, recwarn):
    kind, original, folder = preset
    checkpoint = checkpoints.read(folder)
    checkpoints.write(checkpoint, tmp_path / "there", "keras_hub")
    again = type(original).from_preset(str(tmp_path / "there"))
    for ours, theirs in zip(again.weights, original.weights, strict=True):
        np.testing.assert_array_equal(numpy(ours), numpy(theirs), err_msg=theirs.path)
    tokenizer = keras_hub.tokenizers.BertTokenizer.from_preset(str(tmp_path / "there"))
    for text in ("this film is good!", "GÖÖD films", ""):
        ours = keras_bert.load(tmp_path / "there").preprocessor.tokenizer.tokenize([text])
        np.testing.assert_array_equal(ours[0], tokenizer(text))
    assert [str(w.message) for w in recwarn if "Skipping" in str(w.message)] == []
    found = checkpoints.read(tmp_path / "there")
    assert (found.spec.encoder, found.spec.tokenizer, found.spec.head.task) == (
        checkpoint.spec.encoder,
        checkpoint.spec.tokenizer,
        checkpoint.spec.head.task,
    )


def test_save_as_keras_hub(tmp_path):
    """Save an encoder and a classifier with options that differ from the defaults."""
    encoder = tiny.encoder(hidden_act="gelu_new")
    encoder.preprocessor = keras_bert.Preprocessor(
        tiny.PIECES, lowercase=False, max_sequence_length=20
    )
    keras_bert.save(encoder, tmp_path / "a", format="keras_hub")
    tokenizer = keras_hub.tokenizers.BertTokenizer.from_preset(str(tmp_path / "a"))
    assert not tokenizer.lowercase and not tokenizer.strip_accents
    backbone = keras_hub.models.BertBackbone.from_preset(str(tmp_path / "a"))
    ids = np.array([[2, 5, 7, 3]])
    ones = np.ones_like(ids)
    given = {"token_ids": ids, "padding_mask": ones, "segment_ids": ones * 0}
    mine = {"input_word_ids": ids, "input_mask": ones, "input_type_ids": ones * 0}
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(backbone(given)[key], encoder(mine)[key], atol=1e-5)
    classifier = keras_bert.heads.classifier(encoder, 3)
    keras_bert.save(classifier, tmp_path / "b", format="keras_hub")
    theirs = keras_hub.models.BertTextClassifier.from_preset(str(tmp_path / "b"))
    np.testing.assert_allclose(theirs(given), classifier(mine), atol=1e-5)
    assert theirs.preprocessor.sequence_length == 20
    sets = keras_bert.heads.classifier(encoder, 2, multi_label=True)
    with pytest.raises(ValueError, match="cannot hold multi_label"):
        keras_bert.save(sets, tmp_path / "c", format="keras_hub")
    without = conversion.to_checkpoint(keras_bert.heads.masked_lm(encoder)).without({"pooler"})
    with pytest.raises(ValueError, match="BertBackbone must have a pooler, received none"):
        checkpoints.write(without, tmp_path / "c", "keras_hub")
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, split_cjk=False)
    with pytest.raises(ValueError, match="split_cjk must be true"):
        keras_bert.save(encoder, tmp_path / "c", format="keras_hub")


def test_an_embedder_in_memory():
    model, _ = make("text_embedder")
    ours = conversion.from_keras_hub(model)
    (found,), (expected,) = (outputs("text_embedder", each) for each in (ours, model))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_models_in_memory():
    model, _ = make("classifier")
    ours = conversion.from_keras_hub(model)
    for found, expected in zip(
        outputs("classifier", ours), outputs("classifier", model), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    preprocessor = keras_bert.heads.find_encoder(ours).preprocessor
    assert preprocessor.vocabulary == tuple(tiny.PIECES)
    encoder = conversion.from_keras_hub(model.backbone)
    assert isinstance(encoder, keras_bert.BertEncoder) and encoder.preprocessor is None
    backbone = conversion.to_keras_hub(encoder)
    filled = conversion.to_keras_hub(encoder, keras_hub.models.BertBackbone(**CONFIG))
    for copy in (backbone, filled):
        for ours, theirs in zip(copy.weights, model.backbone.weights, strict=True):
            np.testing.assert_array_equal(numpy(ours), numpy(theirs))
    with pytest.raises(ValueError, match="shape"):
        conversion.to_keras_hub(
            encoder, keras_hub.models.BertBackbone(**{**CONFIG, "intermediate_dim": 9})
        )
    with pytest.raises(ValueError, match="must be a BertBackbone, .* received Dense"):
        conversion.from_keras_hub(keras.layers.Dense(1))


# Names of earlier versions, and bad files


@pytest.fixture(scope="module")
def classifier_preset(tmp_path_factory):
    model, _ = make("classifier")
    folder = tmp_path_factory.mktemp("classifier") / "preset"
    model.save_to_preset(folder)
    return folder


@pytest.fixture
def folder(classifier_preset, tmp_path):
    """A folder that KerasHub saved."""
    return shutil.copytree(classifier_preset, tmp_path / "preset")


def test_names_of_earlier_versions(folder):
    expected = checkpoints.read(folder).weights
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        for layer in ("", "_1", "_2"):
            group = file[f"layers/transformer_encoder{layer}/_self_attention_layer"]
            for name in ("query", "key", "value", "output"):
                group.move(f"{name}_dense", f"_{name}_dense")
    found = checkpoints.read(folder).weights
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def change_dataset(name, make):
    def change(folder):
        with h5py.File(folder / "model.weights.h5", "r+") as file:
            if name in file:
                del file[name]
            if make is not None:
                make(file)

    return change


def change_tokenizer(**options):
    """A function that changes options of the tokenizer in a folder."""
    return lambda folder: edit(folder / "tokenizer.json", lambda c: c["config"].update(options))


BAD = {
    "missing": (change_dataset("layers/dense/vars/0", None), "missing .*layers/dense/vars/0"),
    "extra": (
        change_dataset(
            "layers/more/vars/0", lambda f: f.create_dataset("layers/more/vars/0", data=[1.0, 2.0])
        ),
        r"unknown \(1\): model.weights.h5:layers/more/vars/0",
    ),
    "class": (
        lambda f: edit(f / "config.json", lambda c: c.update(class_name="RobertaBackbone")),
        "class_name must be one of BertBackbone, received 'RobertaBackbone'",
    ),
    "heads": (
        lambda f: edit(f / "config.json", lambda c: c["config"].update(num_heads=4)),
        r"wrong shape .*_self_attention_layer/query_dense/vars/0",
    ),
    "task": (
        lambda f: edit(f / "task.json", lambda c: c.update(class_name=["BertMaskedLM"])),
        "class_name must be one of BertTextClassifier, .*, received .*BertMaskedLM",
    ),
    "lowercase": (change_tokenizer(lowercase="no"), "lowercase must be true or false"),
    "strip_accents": (change_tokenizer(strip_accents=1), "strip_accents must be true or false"),
    "split": (change_tokenizer(split=False), "split must be true"),
    "oov": (change_tokenizer(oov_token="[PAD]"), r"oov_token must be '\[UNK\]'"),
    "special": (change_tokenizer(special_tokens=["good"]), "special_tokens must be"),
    "strings": (change_tokenizer(special_tokens_in_strings=True), "in_strings must be false"),
    "truncate": (
        lambda f: edit(f / "preprocessor.json", lambda c: c["config"].update(truncate="waterfall")),
        "truncate must be 'round_robin'",
    ),
    "suffix": (change_tokenizer(suffix_indicator="@@"), "suffix_indicator must be '##'"),
    "activation": (
        lambda f: edit(f / "task.json", lambda c: c["config"].update(activation="tanh")),
        "activation must be one of linear, softmax, received 'tanh'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_line_errors(folder, case):
    damage_folder, message = BAD[case]
    damage_folder(folder)
    with pytest.raises(ValueError, match=message) as caught:
        dict(checkpoints.read(folder).weights)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_damaged_files(folder):
    files = ["model.weights.h5", "task.weights.h5", "config.json", "task.json", "tokenizer.json"]
    survived = damage.check(
        [folder / name for name in files], lambda: checkpoints.read(folder), times=80
    )
    assert survived < 60  # flipped bits of weights are not detected
