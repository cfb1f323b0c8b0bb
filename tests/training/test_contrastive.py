"""Contrastive training of classifiers of few texts."""

import keras
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import keras_bert
from keras_bert import Examples
from keras_bert.tasks.classification import contrastive
from tests import tiny

TEXTS = ["good film", "so good", "this good film", "bad film", "so bad", "this bad film"]
LABELS = ["yes", "yes", "yes", "no", "no", "no"]
FEW = Examples(TEXTS, labels=LABELS)


@pytest.fixture(autouse=True)
def quick(eager):
    pass


def finetune(train=FEW, dev=None, encoder=None, **options):
    options = {"epochs": 1, "batch_size": 24, "show_progress": False, **options}
    encoder = tiny.encoder(pooling="mean", num_hidden_layers=1) if encoder is None else encoder
    return keras_bert.finetune(encoder, train, dev, **options)


def vectors_of(model, texts):
    embedder = keras_bert.heads.embedder(keras_bert.heads.find_encoder(model))
    return keras_bert.pipeline(embedder).encode(texts)


def test_the_encoder_learns_pairs_and_the_head_is_a_regression(tmp_path, capsys):
    encoder = tiny.encoder(pooling="mean", num_hidden_layers=1)
    model, metrics = finetune(encoder=encoder, learning_rate=1e-2, show_progress=True)
    assert metrics["recipe"]["contrastive"] is True
    assert "6 texts of 2 labels. Each epoch trains the encoder on 48 pairs of texts" in (
        capsys.readouterr().err
    )
    before = vectors_of(encoder, TEXTS)
    vectors = vectors_of(model, TEXTS)
    assert np.abs(vectors - before).max() > 1e-3
    regression = LogisticRegression(C=10.0, max_iter=1000).fit(vectors, LABELS)
    answers = keras_bert.pipeline(model)(TEXTS, top_k=2)
    scores = [{one["label"]: one["score"] for one in answer} for answer in answers]
    for score, row in zip(scores, regression.predict_proba(vectors), strict=True):
        assert [score["no"], score["yes"]] == pytest.approx(list(row), abs=1e-3)
    keras_bert.save(model, tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras")
    again = keras_bert.pipeline(loaded)(TEXTS)
    assert [one["score"] for one in again] == pytest.approx(
        [answer[0]["score"] for answer in answers]
    )
    trained, metrics = finetune(encoder=loaded)  # its head is not new
    assert trained is loaded
    assert "contrastive" not in metrics["recipe"]


def frozen():
    encoder = tiny.encoder(pooling="mean", num_hidden_layers=1)
    encoder.trainable = False
    return {"encoder": encoder}


@pytest.mark.parametrize(
    ("train", "options"),
    [
        (FEW, lambda: {"contrastive": False}),
        (FEW, lambda: {"batch_size": 3}),
        (FEW, lambda: {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}),
        (FEW, lambda: {"optimizer": keras.optimizers.Adam(1e-3)}),
        (FEW, lambda: {"encoder": tiny.encoder(num_hidden_layers=1)}),  # it has no pooling
        (FEW, frozen),
        (Examples(TEXTS * 11, labels=LABELS * 11), dict),  # 33 texts per label
        (Examples(TEXTS, text_pairs=TEXTS, labels=LABELS), dict),
        (Examples(TEXTS, label_sets=[[label] for label in LABELS]), dict),
        (Examples(TEXTS, scores=[1, 2, 3, 4, 5, 6]), dict),
        (Examples(TEXTS[2:4], labels=["yes", "no"]), dict),
    ],
)
def test_other_data_train_on_their_labels(train, options, monkeypatch):
    monkeypatch.setattr(contrastive, "MOST_TEXTS_PER_CLASS", 32)
    _, metrics = finetune(train, **options())
    assert not metrics["recipe"].get("contrastive")


@pytest.mark.parametrize("option", [{}, {"optimizer": keras.optimizers.Adam(1e-3)}])
def test_contrastive_training_on_request(option, monkeypatch):
    monkeypatch.setattr(contrastive, "MOST_TEXTS_PER_CLASS", 1)
    _, metrics = finetune(contrastive=True, **option)
    assert metrics["recipe"]["contrastive"] is True


@pytest.mark.parametrize(
    ("train", "options", "problem"),
    [
        (Examples(TEXTS, text_pairs=TEXTS, labels=LABELS), {}, "single texts"),
        (FEW, {"batch_size": 3}, "batch_size of at least 4"),
        (FEW, {"encoder": "no pooling"}, "pooling='mean'"),
        (FEW, {"encoder": "trained"}, "a new head"),
        (Examples(TEXTS[2:4], labels=["yes", "no"]), {}, "two classes with two texts"),
    ],
)
def test_what_contrastive_training_needs(train, options, problem):
    if options.get("encoder") == "no pooling":
        options = {"encoder": tiny.encoder()}
    elif options.get("encoder") == "trained":
        options = {"encoder": finetune(contrastive=False)[0]}
    with pytest.raises(ValueError, match=problem):
        finetune(train, contrastive=True, **options)


@pytest.mark.parametrize("value", ["no", 0, 1])
def test_other_values_of_the_option(value):
    with pytest.raises(ValueError, match=f"True, False or None; received {value!r}"):
        finetune(contrastive=value)


class Stop(Exception):
    """Ends a run before it deletes its state."""


def test_a_finished_run_is_restored_with_its_head(tmp_path):
    saved = []

    def fail(model, metrics):
        saved.extend(model.get_weights())
        raise Stop

    with pytest.raises(Stop):
        finetune(folder=tmp_path, on_end=fail)
    restored, _ = finetune(folder=tmp_path)
    for weight, other in zip(restored.get_weights(), saved, strict=True):
        np.testing.assert_allclose(weight, other, atol=1e-5)


def test_callbacks_see_the_fitted_head():
    scores = []

    def watch(epoch, logs):
        scores.append(keras_bert.pipeline(callback.model).evaluate(FEW)["accuracy"])
        assert logs["val_accuracy"] == scores[-1]

    callback = keras.callbacks.LambdaCallback(on_epoch_end=watch)
    _, metrics = finetune(dev=FEW, callbacks=[callback], epochs=2, evaluate_every=1)
    assert len(scores) == 2
    assert metrics["accuracy"] == max(record["accuracy"] for record in metrics["history"])


def test_a_label_with_one_text_trains_only_the_head(recwarn):
    data = Examples([*TEXTS, "a film"], labels=[*LABELS, "maybe"])
    model, metrics = finetune(data)
    assert metrics["recipe"]["contrastive"] is True
    assert model.layers[-1].labels == ["maybe", "no", "yes"]
    assert not [warning for warning in recwarn if "left out" in str(warning.message)]
