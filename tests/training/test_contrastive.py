"""Contrastive training of classifiers of few texts."""

import keras
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import keras_bert
from keras_bert import Examples
from tests import tiny

TEXTS = ["good film", "so good", "this good film", "bad film", "so bad", "this bad film"]
LABELS = ["yes", "yes", "yes", "no", "no", "no"]


@pytest.fixture(autouse=True)
def quick(eager):
    pass


FEW = Examples(TEXTS, labels=LABELS)
NOTE = "pairs of texts"


def finetune(train=FEW, dev=None, encoder=None, **options):
    options = {"epochs": 1, "batch_size": 8, "show_progress": False, **options}
    encoder = tiny.encoder(pooling="mean") if encoder is None else encoder
    return keras_bert.finetune(encoder, train, dev, **options)


def vectors_of(model, texts):
    embedder = keras_bert.heads.embedder(keras_bert.heads.find_encoder(model))
    return keras_bert.pipeline(embedder).encode(texts)


def test_the_encoder_learns_pairs_and_the_head_is_a_regression(capsys):
    encoder = tiny.encoder(pooling="mean")
    model, metrics = finetune(encoder=encoder, dev=FEW, learning_rate=1e-3, show_progress=True)
    assert metrics["recipe"]["contrastive"] is True
    assert f"6 texts of 2 labels. Each epoch trains the encoder on 48 {NOTE}" in (
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


@pytest.mark.parametrize(
    ("train", "options"),
    [
        (FEW, {"contrastive": False}),
        (FEW, {"batch_size": 3}),
        (FEW, {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}),
        (Examples(TEXTS * 11, labels=LABELS * 11), {"epochs": 1}),  # 33 texts per label, 66 texts
        (Examples(TEXTS, text_pairs=TEXTS, labels=LABELS), {}),
        (Examples(TEXTS, label_sets=[[label] for label in LABELS]), {}),
        (Examples(TEXTS, scores=[1, 2, 3, 4, 5, 6]), {}),
        (Examples(TEXTS[2:4], labels=["yes", "no"]), {}),
    ],
)
def test_other_data_train_on_their_labels(train, options, monkeypatch):
    from keras_bert.tasks.classification import contrastive

    monkeypatch.setattr(contrastive, "MOST_TEXTS_PER_CLASS", 32)
    _, metrics = finetune(train, **options)
    assert not metrics["recipe"].get("contrastive")


def test_encoders_without_pooling_and_frozen_ones_train_on_the_labels():
    _, metrics = finetune(encoder=tiny.encoder())
    assert "contrastive" not in metrics["recipe"]
    frozen = tiny.encoder(pooling="mean")
    frozen.trainable = False
    _, metrics = finetune(encoder=frozen)
    assert "contrastive" not in metrics["recipe"]


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


def test_many_texts_on_request(monkeypatch):
    from keras_bert.tasks.classification import contrastive

    monkeypatch.setattr(contrastive, "MOST_TEXTS_PER_CLASS", 1)
    _, metrics = finetune(contrastive=True)
    assert metrics["recipe"]["contrastive"] is True


class Stop(Exception):
    """Ends a run before it deletes its state."""


def test_a_resumed_run_gives_the_same_model(tmp_path):
    class Kill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise Stop

    expected, _ = finetune(epochs=2)
    with pytest.raises(Stop):
        finetune(epochs=2, folder=tmp_path, callbacks=[Kill()])
    resumed, _ = finetune(epochs=2, folder=tmp_path)
    for weight, other in zip(resumed.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, atol=1e-5)


def test_a_finished_run_is_restored_with_its_head(tmp_path):
    def fail(model, metrics):
        raise Stop

    expected, _ = finetune()
    with pytest.raises(Stop):
        finetune(folder=tmp_path, on_end=fail)
    restored, _ = finetune(folder=tmp_path)
    for weight, other in zip(restored.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, atol=1e-5)


def test_callbacks_see_the_fitted_head():
    scores = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            scores.append(keras_bert.pipeline(self.model).evaluate(FEW)["accuracy"])
            assert logs["val_accuracy"] == scores[-1]

    _, metrics = finetune(dev=FEW, callbacks=[Watch()], epochs=2, batch_size=24, evaluate_every=1)
    assert len(scores) == 2
    assert metrics["accuracy"] == max(record["accuracy"] for record in metrics["history"])


def test_a_model_on_unit_vectors_is_saved_and_trained_further(tmp_path):
    model, _ = finetune()
    keras_bert.save(model, tmp_path / "model.keras")
    loaded = keras_bert.load(tmp_path / "model.keras")
    expected = keras_bert.pipeline(model)(TEXTS)
    answers = keras_bert.pipeline(loaded)(TEXTS)
    assert [one["score"] for one in answers] == pytest.approx([one["score"] for one in expected])
    trained, metrics = finetune(encoder=loaded)
    assert trained is loaded
    assert "contrastive" not in metrics["recipe"]


def test_an_optimizer_trains_on_the_labels():
    _, metrics = finetune(optimizer=keras.optimizers.Adam(1e-3))
    assert "contrastive" not in metrics["recipe"]
    _, metrics = finetune(optimizer=keras.optimizers.Adam(1e-3), contrastive=True)
    assert metrics["recipe"]["contrastive"] is True


def test_a_label_with_one_text_trains_only_the_head(recwarn):
    data = Examples([*TEXTS, "a film"], labels=[*LABELS, "maybe"])
    model, metrics = finetune(data)
    assert metrics["recipe"]["contrastive"] is True
    assert model.layers[-1].labels == ["maybe", "no", "yes"]
    assert not [warning for warning in recwarn if "left out" in str(warning.message)]


@pytest.mark.parametrize("value", ["no", 0, 1])
def test_other_values_of_the_option(value):
    with pytest.raises(ValueError, match=f"True, False or None; received {value!r}"):
        finetune(contrastive=value)
