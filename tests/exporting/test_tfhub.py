"""Tests of the exported encoder and preprocessor, used like the BERT models of TF-Hub."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert
from tests import tiny

TEXTS = ["this film is good!", "", "so bad  한국어", "good " * 200]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    encoder = tiny.encoder(max_position_embeddings=160)
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES, max_sequence_length=160)
    return keras_bert.heads.pretraining(encoder)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """The exported SavedModels, moved to another folder."""
    path = tmp_path_factory.mktemp("pair") / "first"
    assert keras_bert.export(model, path) == path / "encoder" / "1"
    return path.rename(path.parent / "moved")


@pytest.fixture(scope="module")
def preprocess(folder):
    return tf.saved_model.load(str(folder / "preprocess" / "1"))


@pytest.fixture(scope="module")
def encoder(folder):
    return tf.saved_model.load(str(folder / "encoder" / "1"))


def numpy(tensors):
    return {key: keras.ops.convert_to_numpy(value) for key, value in tensors.items()}


@pytest.mark.slow
def test_texts_to_inputs(model, preprocess):
    found = preprocess(tf.constant(TEXTS))
    expected = keras_bert.heads.find_encoder(model).preprocessor(TEXTS)
    for key, array in numpy(expected).items():
        assert found[key].shape == (4, 128) and found[key].dtype == tf.int32
        np.testing.assert_array_equal(found[key], array)
    served = preprocess.signatures["serving_default"](inputs=tf.constant(TEXTS))
    np.testing.assert_array_equal(served["input_word_ids"], found["input_word_ids"])
    assert preprocess(tf.constant([], tf.string))["input_mask"].shape == (0, 128)


def test_tokenize(model, preprocess):
    ids = preprocess.tokenize(tf.constant(["filmly a", "", "films"]))
    token_id = tiny.PIECES.index
    assert ids.dtype == tf.int32
    assert ids.to_list() == [
        [[token_id("film"), token_id("##ly")], [token_id("a")]],
        [],
        [[token_id("film"), token_id("##s")]],
    ]
    found = preprocess.tokenize_with_offsets(tf.constant(["é filmly a"]))
    assert [item.to_list() for item in found] == [
        [[[1], [token_id("film"), token_id("##ly")], [token_id("a")]]],
        [[[0], [3, 7], [10]]],
        [[[2], [7, 9], [11]]],
    ]


@pytest.mark.parametrize("name", ["tokenize", "tokenize_with_offsets"])
def test_special_tokens(preprocess, name):
    tokens = getattr(preprocess, name).get_special_tokens_dict()
    assert {key: int(value) for key, value in tokens.items()} == {
        "vocab_size": len(tiny.PIECES), "padding_id": 0, "start_of_sequence_id": 2,
        "end_of_segment_id": 3, "mask_id": 4,
    }  # fmt: skip
    assert {value.dtype for value in tokens.values()} == {tf.int32}


@pytest.mark.parametrize("batch", [7, None])
def test_static_batch_sizes_stay(preprocess, batch):
    """XLA and layers of a fixed batch size need them."""

    @tf.function(input_signature=[tf.TensorSpec([batch], tf.string)])
    def run(texts):
        tokens = preprocess.tokenize(texts)
        packed = preprocess.bert_pack_inputs([tokens] * 2, seq_length=24)
        with_offsets = preprocess.tokenize_with_offsets(texts)
        return tokens, with_offsets, packed, preprocess(texts)

    tokens, with_offsets, *packed = run.get_concrete_function().structured_outputs
    for ragged in (tokens, *with_offsets):
        assert ragged.shape.as_list() == [batch, None, None]
    for inputs, length in zip(packed, (24, 128), strict=True):
        assert {tuple(item.shape) for item in inputs.values()} == {(batch, length)}


@pytest.mark.parametrize("length", [12, 7, tf.constant(200), tf.constant(12, "int64")])
@pytest.mark.parametrize("pairs", [False, True])
def test_pack(preprocess, length, pairs):
    others = ["a film", "so so so bad", "", "good " * 300]
    columns = [TEXTS, others] if pairs else [TEXTS]
    segments = [preprocess.tokenize(tf.constant(column)) for column in columns]
    reference = keras_bert.Preprocessor(
        tiny.PIECES, sequence_length=int(length), max_sequence_length=int(length)
    )
    expected = numpy(reference(*columns))
    without_words = [segment.merge_dims(1, 2) for segment in segments]
    for ids in (segments, without_words):
        packed = preprocess.bert_pack_inputs(ids, seq_length=length)
        for key, array in expected.items():
            np.testing.assert_array_equal(packed[key], array)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("segments, least", [(1, 2), (2, 3)])
def test_length_of_pack_is_too_small(preprocess, segments, least, as_tensor):
    ids = [preprocess.tokenize(tf.constant(TEXTS))] * segments
    for length in (-1, 0, 1, 2, 3):
        seq_length = tf.constant(length) if as_tensor else length
        if length >= least:
            packed = preprocess.bert_pack_inputs(ids, seq_length=seq_length)
            assert {tuple(value.shape) for value in packed.values()} == {(len(TEXTS), length)}
        else:
            # A Python int fails while TensorFlow traces the function, with its own message.
            with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as caught:
                preprocess.bert_pack_inputs(ids, seq_length=seq_length)
            assert not as_tensor or f"seq_length must be at least {least}" in str(caught.value)


@pytest.mark.slow
def test_sequence_length_fits_the_encoder(tmp_path):
    encoder = tiny.encoder()
    encoder.preprocessor = keras_bert.Preprocessor(tiny.PIECES)  # 512 positions; the encoder has 32
    keras_bert.export(encoder, tmp_path)
    preprocess = tf.saved_model.load(str(tmp_path / "preprocess" / "1"))
    inputs = preprocess(tf.constant(TEXTS))
    assert inputs["input_word_ids"].shape == (4, 32)
    encode = tf.saved_model.load(str(tmp_path / "encoder" / "1"))
    assert encode(inputs)["pooled_output"].shape == (4, 8)


def test_encoder_outputs(model, preprocess, encoder):
    inputs = preprocess(tf.constant(TEXTS))
    found = encoder(inputs, training=False)
    expected = keras_bert.heads.find_encoder(model)(numpy(inputs))
    assert len(found["encoder_outputs"]) == len(expected["encoder_outputs"])
    for key in ("pooled_output", "sequence_output"):
        np.testing.assert_allclose(found[key], expected[key], atol=1e-5)
    np.testing.assert_array_equal(found["default"], found["pooled_output"])
    np.testing.assert_array_equal(found["encoder_outputs"][-1], found["sequence_output"])
    without = encoder(inputs)  # training is False by default
    np.testing.assert_array_equal(without["pooled_output"], found["pooled_output"])
    short = {key: value[:2, :5] for key, value in inputs.items()}
    assert encoder(short)["sequence_output"].shape == (2, 5, 8)
    trained = encoder(inputs, training=True)["pooled_output"]
    assert np.abs(trained - found["pooled_output"]).max() > 1e-4  # dropout
    served = encoder.signatures["serving_default"](**inputs)
    np.testing.assert_allclose(served["pooled_output"], found["pooled_output"], atol=1e-6)


def test_masked_lm(model, preprocess, encoder):
    inputs = preprocess(tf.constant(TEXTS))
    inputs["masked_lm_positions"] = tf.constant([[1, 2]] * 4)
    found = encoder.mlm(inputs, training=False)
    expected = model(numpy(inputs))["masked_lm"]
    np.testing.assert_allclose(found["mlm_logits"], expected, atol=1e-5)
    # One pass of the encoder: with dropout, logits and `sequence_output` still match.
    trained = encoder.mlm(inputs, training=True)
    head = model.get_layer("masked_lm")
    logits = head(trained["sequence_output"], inputs["masked_lm_positions"])
    np.testing.assert_allclose(trained["mlm_logits"], logits, atol=1e-5)
    assert set(found) == {
        "default", "pooled_output", "sequence_output", "encoder_outputs", "mlm_logits",
    }  # fmt: skip
    assert len(encoder.mlm.trainable_variables) == len(encoder.trainable_variables) + 5


def test_encoder_without_head_has_no_mlm(tmp_path):
    encoder = tiny.encoder(num_hidden_layers=1)
    encoder.preprocessor = None
    keras_bert.export(encoder, tmp_path / "a")
    assert not (tmp_path / "a" / "preprocess").exists()
    assert not hasattr(tf.saved_model.load(str(tmp_path / "a" / "encoder" / "1")), "mlm")


def test_gradients(model, preprocess, encoder):
    kernels = keras_bert.heads.find_encoder(model).weights
    assert len(encoder.trainable_variables) == len(encoder.variables) == len(kernels)
    assert list(encoder.regularization_losses) == []
    inputs = preprocess(tf.constant(TEXTS))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(inputs, training=True)["pooled_output"])
    gradients = tape.gradient(loss, list(encoder.trainable_variables))
    assert all(gradient is not None for gradient in gradients)
    assert sum(float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(g)))) for g in gradients) > 0


def test_vocabulary_and_casing_are_saved(folder, encoder):
    for name in ("encoder", "preprocess"):
        assets = folder / name / "1" / "assets"
        text = (assets / "vocab.txt").read_text(encoding="utf-8")
        assert text.split("\n")[:-1] == tiny.PIECES
    assert encoder.vocab_file.asset_path.numpy().decode().startswith(str(folder))
    assert bool(encoder.do_lower_case)


@pytest.mark.parametrize("name", ["preprocess", "encoder"])
def test_a_linked_folder_in_the_output_folder_is_refused(tmp_path, name):
    """A link in a folder of somebody else leads to another folder of the user."""
    (tmp_path / "own").mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).symlink_to(tmp_path / "own")
    with pytest.raises(ValueError, match=rf"{name} must not be a link; delete it"):
        keras_bert.export(tiny.encoder(num_hidden_layers=1), folder)
    assert list(folder.iterdir()) == [folder / name]
    assert not list((tmp_path / "own").iterdir())
