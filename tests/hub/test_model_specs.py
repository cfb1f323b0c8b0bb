"""A spec says all that a model computes, or the model is not saved in another library's format."""

import functools
import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import checkpoints, heads
from keras_bert.exporting.model_comparison import differences
from keras_bert.hub import conversion
from keras_bert.layers import TaskOutput, UnitLength
from keras_bert.token_model import TokenModel
from tests import tiny


def encoder(**options):
    return tiny.encoder(num_hidden_layers=1, hidden_act="gelu_new", **options)


def own_head(output, *layers):
    """Return a model with a head that no function of `heads` builds."""
    model = encoder()
    x = keras.layers.Dense(2, name="logits")(model(model.input)["pooled_output"])
    for layer in layers:
        x = layer(x)
    return TokenModel(model.input, output(x))


def twice(layer):
    return heads.embedder(encoder(), layers=[layer, layer], normalize=False)


CLASSES = {"labels": ["a", "b"], "name": "output"}
OWN = {
    "a layer without weights": lambda: own_head(
        TaskOutput("classification", **CLASSES), keras.layers.Rescaling(5.0)
    ),
    "an activation": lambda: own_head(TaskOutput("classification", activation="tanh", **CLASSES)),
    "names of outputs": lambda: own_head(TaskOutput("classification", names=["x", "y"], **CLASSES)),
    "a layer that is used twice": lambda: twice(
        keras.layers.Dense(heads.find_encoder(encoder()).bert_config["hidden_size"])
    ),
    "a normalization that is used twice": lambda: twice(UnitLength()),
    "rows of texts": lambda: heads.siamese(heads.embedder(encoder())),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("format", ["huggingface", "sentence_transformers"])
def test_models_that_no_spec_describes(name, format, tmp_path):
    with pytest.raises(ValueError, match="Use format='keras'"):
        keras_bert.save(OWN[name](), tmp_path / "a", format=format)
    assert not (tmp_path / "a").exists()


@pytest.mark.filterwarnings("ignore:the format .* does not keep")
@pytest.mark.parametrize("format", ["keras", *checkpoints.WRITABLE])
def test_variants_of_a_task(format, tmp_path):
    """A classifier of one label is not loaded as one of sets of labels, if its folder says so."""
    pairs = format == "sentence_transformers"  # it holds no other classifiers
    model = heads.classifier(encoder(), labels=["a", "b"], pairs=pairs)
    keras_bert.save(model, tmp_path / "a", format=format)
    load = functools.partial(keras_bert.load, tmp_path / "a", task="multi_label")
    if format in ("google", "keras_hub"):  # their folders do not say it
        assert heads.find_output(load()).multi_label
    else:
        with pytest.raises(ValueError, match="has multi_label=False.*'multi_label'.*fresh_head"):
            load()
    assert heads.find_output(load(fresh_head=True, labels=["a", "b"])).multi_label


def test_layers_of_the_user_keep_their_weights(tmp_path):
    model = heads.embedder(encoder(), layers=[keras.layers.Dense(4)])
    keras_bert.save(model, tmp_path / "a", format="sentence_transformers")
    own = keras.layers.Dense(4)
    own.build((None, model.get_layer("pooling").output.shape[-1]))
    kernel = np.array(own.kernel)
    keras_bert.load(tmp_path / "a", task="embedding", layers=[own])
    np.testing.assert_array_equal(own.kernel, kernel)


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_null_is_a_missing_key(tmp_path):
    keras_bert.save(heads.embedder(encoder()), tmp_path / "a", format="keras_hub")
    expected = conversion.spec_of(keras_bert.load(tmp_path / "a", task="auto"))
    edit(tmp_path / "a/tokenizer.json", lambda content: content["config"].update(lowercase=None))
    edit(tmp_path / "a/task.json", lambda content: content["config"].update(normalize=None))
    assert conversion.spec_of(keras_bert.load(tmp_path / "a", task="auto")) == expected


def test_a_tie_without_a_masked_lm_says_nothing(tmp_path):
    keras_bert.save(encoder(), tmp_path / "a", format="huggingface")
    edit(tmp_path / "a/config.json", lambda content: content.update(tie_word_embeddings=False))
    keras_bert.convert(tmp_path / "a", tmp_path / "b", format="huggingface")
    keras_bert.convert(tmp_path / "a", tmp_path / "c", format="google")


def test_a_dropped_head_takes_its_options_with_it(tmp_path):
    keras_bert.save(heads.reranker(encoder()), tmp_path / "a", format="huggingface")
    path = tmp_path / "b"
    written = keras_bert.convert(tmp_path / "a", path, format="huggingface", drop=["classifier"])
    assert written.spec == checkpoints.read(path).spec


def test_a_classifier_is_no_embedder(tmp_path):
    model = heads.classifier(encoder(pooling="mean"), labels=["0", "1"], pooling="pooler")
    with pytest.raises(ValueError, match="has no pooling|cannot hold"):
        keras_bert.save(model, tmp_path / "a", format="sentence_transformers")


def test_a_guessed_head_is_said(tmp_path):
    model = heads.tagger(encoder(), labels=["0", "1"])
    with pytest.warns(UserWarning, match="does not keep task='tagging'"):
        keras_bert.save(model, tmp_path / "a", format="google")
    with pytest.warns(UserWarning, match="For the head, pass .*task='tagging'"):
        keras_bert.load(tmp_path / "a", task="auto")
    with pytest.warns(UserWarning, match="converted as classification"):
        keras_bert.convert(tmp_path / "a", tmp_path / "b", format="huggingface")


def test_an_added_token_with_the_name_of_a_free_id(tmp_path):
    pieces = [*tiny.PIECES[:10], "[unused19]", *tiny.PIECES[10:]]
    preprocessor = keras_bert.Preprocessor(
        pieces, sequence_length=8, max_sequence_length=32, added_tokens=["[unused19]"]
    )
    model = encoder(preprocessor=preprocessor, vocab_size=len(pieces) + 4)
    keras_bert.save(model, tmp_path / "a", format="huggingface")
    again = keras_bert.load(tmp_path / "a").preprocessor.python_tokenizer
    assert again.tokenize(["[unused19]"]) == [[10]]


def test_labels_are_words_also_if_they_are_numbers():
    results = [{"label": label, "score": 0.5} for label in (1.0, 2.0)]
    assert differences(*results) == (0.0, False)
