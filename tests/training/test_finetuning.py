"""Fine-tuning: every task learns, the best epoch is kept, runs repeat, and Ctrl-C stops."""

import contextlib
import re
import signal

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.data import tabular
from keras_bert.tasks import registry
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.tagging import data as conll
from keras_bert.training import finetuning
from keras_bert.training.callbacks import best, first_metric
from tests import tiny
from tests.runtime.test_tensorboard import scalars

# Data, and the number of epochs that suffice to memorize it.
DATA = {
    "one label": (tiny.examples(), 8),
    "tags": (tiny.tagged(), 10),
    "questions": (tiny.questions(), 10),
    "choices": (tiny.choices(), 4),
}


ADAM = keras.optimizers.Adam


def assert_equal(arrays, others):
    for array, other in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(array, other)


def finetune(examples=None, dev=None, encoder=None, **options):
    options = {
        "batch_size": 8,
        "learning_rate": 1e-2,
        "max_length": 16,
        "show_progress": False,
        **options,
    }
    examples = tiny.examples() if examples is None else examples
    return finetuning.finetune(encoder or tiny.learner(), examples, dev, **options)


def weights(model):
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights]


@pytest.mark.parametrize("kind", DATA)
def test_each_task_learns(kind, capsys):
    examples, epochs = DATA[kind]
    # Score only the last epoch, not the best one, so that a lucky epoch does not pass.
    model, metrics = finetune(examples, epochs=epochs, show_progress=True)
    assert metrics["history"][-1]["loss"] == metrics["train_loss"] < metrics["history"][0]["loss"]
    scores = keras_bert.evaluate(model, examples)
    names = registry.for_data(examples).metric_names(heads.find_output(model), examples)
    assert tuple(s for s in scores if s != "majority" and not s.endswith("threshold")) == names
    assert next(iter(scores.values())) > 0.99
    assert capsys.readouterr().out == ""


class CtrlC(keras.callbacks.Callback):
    """Raises KeyboardInterrupt after a number of batches."""

    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.fixture
def scored(monkeypatch):
    """Return a function that replaces the scores of successive epochs."""

    def script(**columns):
        kept = []
        epochs = iter(range(99))

        def score(predictor, *arguments):
            kept.append(weights(predictor.model))
            epoch = next(epochs)
            return {name: values[epoch] for name, values in columns.items()}

        monkeypatch.setattr(KerasPredictor, "metrics", score)
        return kept

    return script


def test_best_weights_are_returned(eager, scored, tmp_path):
    kept = scored(accuracy=[0.5, 0.9, 0.9], f1=[0.1, 0.2, 0.3])
    examples = tiny.examples(tiny.ROWS[:8])
    model, metrics = finetune(examples, examples, epochs=3, folder=tmp_path)
    assert_equal(weights(model), kept[1])
    assert (metrics["metric"], metrics["best_epoch"], metrics["accuracy"]) == ("accuracy", 2, 0.9)
    assert [record["f1"] for record in metrics["history"]] == [0.1, 0.2, 0.3]
    assert [record["epoch"] for record in metrics["history"]] == [1, 2, 3]
    assert (metrics["f1"], metrics["stopped"]) == (0.2, False)
    assert list(tmp_path.iterdir()) == []


def test_metric_selects_the_best_epoch():
    names = ("epoch", "loss", "pearson", "rmse", "majority")
    rows = [(1, 0.0, 0.7, 0.8, 0.5), (2, 0.0, 0.9, 0.3, 0.5), (3, 0.0, 0.6, 0.2, 0.5)]
    history = [dict(zip(names, row, strict=True)) for row in rows]
    for metric, epoch in ((None, 2), ("pearson", 2), ("rmse", 3)):
        assert best(history, metric)["epoch"] == epoch
    assert first_metric(history[0]) == "pearson"
    history[0]["pearson"] = float("nan")
    assert best(history)["epoch"] == 2


def test_patience_stops_without_improvement(eager, scored):
    scored(accuracy=[0.5, 0.7, 0.6, 0.7, 0.9], f1=[0.1, 0.2, 0.3, 0.4, 0.5])
    examples = tiny.examples(tiny.ROWS[:4])
    _, metrics = finetune(examples, examples, epochs=5, patience=2)
    assert [record["accuracy"] for record in metrics["history"]] == [0.5, 0.7, 0.6, 0.7]
    assert (metrics["best_epoch"], metrics["stopped"]) == (2, False)


def test_ctrl_c_returns_the_best_so_far(eager, scored):
    kept = scored(accuracy=[0.5, 0.4])
    examples = tiny.examples(tiny.ROWS[:8])
    model, metrics = finetune(examples, examples, batch_size=4, callbacks=[CtrlC(5)])
    assert metrics["stopped"]
    assert (metrics["best_epoch"], len(metrics["history"])) == (1, 2)
    assert_equal(weights(model), kept[0])


@pytest.mark.parametrize("method", ["on_train_batch_end", "on_test_begin"])
def test_an_epoch_with_a_swallowed_ctrl_c_is_not_the_best(eager, scored, hears_ctrl_c, method):
    """TensorFlow, for example, swallows the KeyboardInterrupt of a Python function."""
    kept = scored(accuracy=[0.5, 0.9])
    calls = []

    def swallow(*_, **__):
        calls.append(method)
        if len(calls) == 2:  # in the second epoch of one batch
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    callback = keras.callbacks.Callback()
    setattr(callback, method, swallow)
    examples = tiny.examples(tiny.ROWS[:8])
    model, metrics = finetune(examples, examples, batch_size=8, callbacks=[callback])
    assert (metrics["stopped"], metrics["best_epoch"], metrics["accuracy"]) == (True, 1, 0.5)
    assert [record["epoch"] for record in metrics["history"]] == [1]
    assert_equal(weights(model), kept[0])


def test_ctrl_c_in_first_epoch_returns_current_weights(eager, tmp_path):
    examples = tiny.examples(tiny.ROWS[:8])
    options = {"batch_size": 4, "folder": tmp_path, "callbacks": [CtrlC(1)]}
    model, metrics = finetune(examples, examples, **options)
    assert (metrics["stopped"], metrics["best_epoch"]) == (True, 0.5)
    assert metrics["accuracy"] == keras_bert.evaluate(model, examples)["accuracy"]
    assert metrics["train_loss"] > 0
    assert int(model.optimizer.iterations) == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_before_first_step_raises(eager):
    def stop(logs):
        raise KeyboardInterrupt

    at_once = keras.callbacks.LambdaCallback(on_train_begin=stop)
    with pytest.raises(KeyboardInterrupt):
        finetune(tiny.examples(tiny.ROWS[:8]), callbacks=[at_once])


@pytest.mark.parametrize("is_kept", [False, True])
def test_ctrl_c_during_keep_best(is_kept, eager, scored, tmp_path, monkeypatch):
    """The returned scores belong to the returned weights in any case."""
    kept = scored(accuracy=[0.5, 0.9])
    plain, calls = finetuning.RunState.keep_best, []

    def keep_best(self, *args):
        calls.append(args)
        if is_kept or len(calls) < 2:
            plain(self, *args)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(finetuning.RunState, "keep_best", keep_best)
    examples = tiny.examples(tiny.ROWS[:8])
    model, metrics = finetune(examples, examples, folder=tmp_path)
    assert metrics["stopped"]
    assert (metrics["best_epoch"], metrics["accuracy"]) == ((2, 0.9) if is_kept else (1, 0.5))
    assert [record["epoch"] for record in metrics["history"]] == [1, 2][: 1 + is_kept]
    assert_equal(weights(model), kept[is_kept])


def test_line_per_epoch_without_terminal(eager, capsys, scored):
    scored(accuracy=[0.5, 0.75], majority=[0.5, 0.5])
    examples = tiny.examples(tiny.ROWS[:4])
    finetune(examples, examples, epochs=2, show_progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert re.fullmatch(
        r"epoch 2 of 2: loss 0\.\d{3}, accuracy 0\.750, dev_loss 0\.\d{3}", lines[1]
    )


def test_tensorboard_gets_each_epoch(eager, tmp_path, scored):
    scored(accuracy=[0.5, 0.75])
    examples = tiny.examples(tiny.ROWS[:4])
    _, metrics = finetune(examples, examples, epochs=2, tensorboard=tmp_path)
    found = scalars(tmp_path)
    assert (found["accuracy", 1], found["accuracy", 2]) == (0.5, 0.75)
    assert found["loss", 2] == pytest.approx(metrics["train_loss"])


def test_truncated_and_empty_texts_are_counted(eager):
    examples = tiny.examples([*tiny.ROWS[:8], ("good", "good " * 50), ("bad", "\u200b")])
    dev = tiny.examples([("good", "good " * 50)] * 3)
    _, metrics = finetune(examples, dev, epochs=1)
    assert (metrics["truncated"], metrics["without_tokens"], metrics["dev_truncated"]) == (1, 1, 3)
    assert "dev_without_tokens" not in metrics


def test_an_optimizer_and_a_loss_of_the_caller(eager):
    class Double(keras.losses.SparseCategoricalCrossentropy):
        def call(self, targets, logits):
            return 2 * super().call(targets, logits)

    examples = tiny.examples(tiny.ROWS[:8])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
    runs = []
    for loss in (None, Double(from_logits=True)):
        model, metrics = finetune(examples, examples, optimizer=optimizer, loss=loss, epochs=1)
        assert isinstance(model.optimizer, keras.optimizers.SGD) and not optimizer.built
        assert metrics["recipe"]["optimizer"]["momentum"] == 0.5
        runs.append(metrics)
    assert runs[1]["train_loss"] == pytest.approx(2 * runs[0]["train_loss"], rel=0.1)
    assert runs[1]["dev_loss"] == pytest.approx(2 * runs[0]["dev_loss"], rel=0.5)


def test_encoder_does_not_change(eager):
    """A second call with the same encoder gives the same model."""
    encoder = tiny.learner()
    length = encoder.preprocessor.max_sequence_length
    before = [weight.numpy() for weight in encoder.weights]
    models = [finetune(encoder=encoder, epochs=1, max_length=6)[0] for _ in range(2)]
    assert heads.find_encoder(models[0]).preprocessor.max_sequence_length == 6
    for a, b in zip(before, encoder.weights, strict=True):
        np.testing.assert_array_equal(a, b.numpy())
    assert encoder.preprocessor.max_sequence_length == length
    assert_equal(*(model.get_weights() for model in models))
    trained = heads.find_encoder(models[0])
    assert any((a != b.numpy()).any() for a, b in zip(before, trained.weights, strict=True))


@pytest.mark.slow
def test_nan_weights_after_the_last_step_raise(eager, scored):
    """No later loss would show them."""
    scored(accuracy=[0.5])

    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch:
                variable = self.model.trainable_variables[-1]
                variable.assign(variable * np.nan)

    examples = tiny.examples(tiny.ROWS[:8])
    with pytest.raises(ValueError, match="training diverged, .* holds NaN or infinity"):
        finetune(examples, examples, epochs=1, batch_size=4, callbacks=[Spoil()])


def test_divergence_raises(eager):
    with pytest.raises(ValueError, match="training diverged, the loss is"):
        finetune(epochs=2, learning_rate=1e30)


ODD_TAG = conll.TaggedSentences([["a"]], [["B-odd"]], source="it")
PAIRS = tabular.Examples(["a"], text_pairs=["b"], labels=["good"], source="it")


@pytest.mark.parametrize(
    ("examples", "dev", "message"),
    [
        (tabular.Examples(["a"]), None, "the training data, the examples, has no labels"),
        (tiny.examples(), tabular.Examples(["a"]), "the dev data, the examples, has no labels"),
        (tiny.examples([("good", "a")] * 3, source="it"), None, "it: .*two labels.*'good'"),
        (tiny.examples(), tiny.examples([("odd", "a")], source="it"),
         "it, row 1: .*'odd'.*No row of the training data, the examples, has this"),
        (tiny.tagged(), ODD_TAG, "it, sentence 1: .*'B-odd'.*No row of the training data, "),
        (tiny.examples(), tabular.Examples(["a"], scores=[1], source="it"),
         "takes labels; received scores in it"),
        (tiny.examples(), PAIRS, "single texts; it has pairs of texts$"),
        (conll.TaggedSentences([["a"]], [["O"]], source="it"), None, "it: .*two tags.*'O'"),
        (["a", "b"], None, "Examples, .*list"),
        (conll.TaggedSentences([["\u200b"]] * 2, [["O"], ["B-x"]]), None, "no text has tokens"),
    ],
)  # fmt: skip
def test_unusable_data_raises(examples, dev, message):
    with pytest.raises(ValueError, match=message):
        finetune(examples, dev, epochs=1)


def test_truncated_texts_are_counted_in_a_note(capsys):
    long = tiny.examples([("good", "a " * 40), ("bad", "b")] * 2, source="it")
    finetune(long, long, epochs=1, max_length=8, show_progress=True)
    finetune(long, epochs=1, max_length=8, show_progress=True)
    note = "it: 2 texts were truncated to 8 tokens (max_length)\n"
    assert capsys.readouterr().err.count(note) == 1


@pytest.mark.slow
def test_step_is_traced_once(monkeypatch):
    """A second trace of a model of six layers costs as much as twenty steps."""
    traced, step = [], keras.Model.train_step
    monkeypatch.setattr(
        keras.Model, "train_step", lambda self, *a, **k: traced.append(self) or step(self, *a, **k)
    )
    finetuning.finetune(
        tiny.encoder(), tiny.questions(), epochs=2, fixed_length=True, max_length=32
    )
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda: "minilm", "received 'minilm'. Load a name"),
        (lambda: tiny.encoder(preprocessor=None), "has no preprocessor"),
    ],
)
def test_what_is_no_encoder_raises(encoder, message):
    with pytest.raises(ValueError, match=message):
        finetuning.finetune(encoder(), tiny.examples())


@pytest.mark.parametrize(
    "options",
    [
        {"dev": [1]},
        {"max_length": 99},  # the encoder has 32 positions
        {"optimizer": "nope"},
        {"optimizer": ADAM},
        {"optimizer": {"a": 1}},
        {"callbacks": [3]},
        {"seed": 2**70},
        {"learning_rate": "x"},
        {"warmup": None},
        {"evaluate_every": "a"},
        {"folder": 3},
        {"tensorboard": 3},
    ],
)
def test_an_error_names_the_argument(options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"{name} (must be|takes)"):
        keras_bert.finetune(tiny.encoder(), tiny.examples(), show_progress=False, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weight": "equal"}, "class_weight must be"),
        ({"stride": 4}, "stride is not an option of finetune for Examples"),
        ({"long_texts": "window", "metric": "f2"}, "metric must be one of accuracy"),
    ],
)
def test_wrong_options_change_nothing(options, message):
    model = heads.classifier(tiny.encoder(), labels=["bad", "good"])
    preprocessor = heads.find_encoder(model).preprocessor
    before = (preprocessor.max_sequence_length, heads.find_output(model).long_texts)
    data = tiny.examples()
    with pytest.raises(ValueError, match=message):
        finetuning.finetune(model, data, data, max_length=16, show_progress=False, **options)
    assert (preprocessor.max_sequence_length, heads.find_output(model).long_texts) == before
    assert not model.compiled


def test_the_loss_is_that_of_the_best_epoch():
    data = tiny.examples(tiny.ROWS[:8])
    with tiny.eagerly():  # all epochs are equal, but for dropout; the first one is kept
        encoder = tiny.encoder(num_hidden_layers=1)
        _, metrics = finetune(data, data, encoder, epochs=2, learning_rate=1e-12)
    first, last = metrics["history"]
    assert metrics["best_epoch"] == 1
    assert metrics["train_loss"] == first["loss"] != last["loss"]


@pytest.mark.parametrize("task", ["pair", "embedding"])
def test_the_columns_of_the_data_are_remembered(tmp_path, task):
    pandas = pytest.importorskip("pandas")
    texts = {"Review Text": ["good", "bad"], "text": ["a", "a"], "Other": ["so", "film"]}
    frame = pandas.DataFrame({**texts, "Kind": [1, 0]})
    label = None if task == "embedding" else "Kind"
    options = {"text": "Review Text", "text_pair": "Other", "label": label}
    train = keras_bert.read(frame, task, **options)
    with tiny.eagerly():
        model, _ = keras_bert.finetune(tiny.learner(), train, epochs=1, show_progress=False)
    keras_bert.save(model, tmp_path / "model")
    for source in (model, tmp_path / "model"):
        pipe = keras_bert.pipeline(source)
        column = "embedding" if task == "embedding" else "score"
        names = {name: options[name] for name in pipe.columns}
        expected = pipe(frame, **names)[column].tolist()
        np.testing.assert_array_equal(pipe(frame)[column].tolist(), expected)
        with pytest.raises(ValueError, match="no column 'text'"):
            pipe(frame[["Kind"]])


class _Focal(keras.losses.Loss):
    """A loss whose config lacks its argument."""

    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def call(self, targets, logits):
        loss = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        return loss * (1 - keras.ops.exp(-loss)) ** self.gamma


def test_a_loss_keeps_its_arguments(eager):
    rows = tiny.examples(tiny.ROWS[:8])
    losses = [finetune(rows, loss=_Focal(gamma), epochs=1)[1]["train_loss"] for gamma in (0.0, 2.0)]
    plain = finetune(rows, epochs=1)[1]["train_loss"]
    assert losses[0] == pytest.approx(plain, rel=1e-4) and losses[1] < losses[0]


def test_an_optimizer_keeps_its_exclusions_from_weight_decay(eager):
    rows = tiny.examples(tiny.ROWS[:8])
    losses = []
    for excluded in ([], ["kernel", "embeddings", "bias", "gamma", "beta"]):
        optimizer = keras.optimizers.AdamW(1e-2, weight_decay=5.0)
        optimizer.exclude_from_weight_decay(var_names=excluded)
        model, _ = finetune(rows, optimizer=optimizer, epochs=2)
        losses.append(float(np.abs(model.get_layer("logits").get_weights()[0]).sum()))
    assert losses[1] > losses[0]


def test_a_schedule_counts_optimizer_steps(eager):
    schedule = keras_bert.optimizers.WarmupLinearDecay(1e-2, total_steps=2)
    options = {"gradient_accumulation_steps": 2, "batch_size": 4, "epochs": 2}
    rows = tiny.examples(tiny.ROWS[:8])
    model, _ = finetune(rows, optimizer=ADAM(schedule), **options)
    rates = [float(model.optimizer._learning_rate(batch)) for batch in range(4)]
    np.testing.assert_allclose(rates, [1e-2, 1e-2, 5e-3, 5e-3])
    schedule = keras.optimizers.schedules.CosineDecay(1e-2, 2)
    with pytest.raises(ValueError, match="CosineDecay would count batches"):
        finetune(rows, optimizer=ADAM(schedule), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": ADAM(gradient_accumulation_steps=4)}, "gradient_accumulation_steps of fi"),
        ({"optimizer": keras.optimizers.LossScaleOptimizer(ADAM())}, "the inner_optimizer"),
        ({"optimizer": "adam", "learning_rate": -1}, "learning_rate must be at least 0"),
        ({"loss": keras.losses.SparseCategoricalCrossentropy()}, "must have from_logits=True"),
        ({"loss": "mse"}, "loss must be a keras.losses.Loss, .*received 'mse'"),
    ],
)
def test_optimizers_and_losses_that_finetune_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        finetune(tiny.examples(tiny.ROWS[:8]), **options)


def test_the_name_of_an_optimizer_trains_with_the_learning_rate(eager):
    rows = tiny.examples(tiny.ROWS[:8])
    model, metrics = finetune(rows, optimizer="sgd", learning_rate=0.25, epochs=1)
    assert float(model.optimizer.learning_rate) == 0.25
    assert "warmup" not in metrics["recipe"]
    assert metrics["recipe"]["optimizer"]["learning_rate"] == 0.25


def test_a_run_with_an_optimizer_resumes_in_the_same_process(eager, tmp_path):
    def stop(epoch, logs):
        if epoch == 0:
            raise RuntimeError("stop")

    def run(**options):
        return finetune(
            tiny.examples(tiny.ROWS[:8]), epochs=2, folder=tmp_path, loss=_Focal(1.0),
            optimizer=ADAM(1e-3), **options,
        )  # fmt: skip

    with pytest.raises(RuntimeError, match="stop"):
        run(callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=stop)])
    _, metrics = run()
    assert len(metrics["history"]) == 2


class OwnStep(keras.Model):
    def train_step(self, *args, **kwargs):
        return super().train_step(*args, **kwargs)


def test_a_model_with_its_own_training_step_raises():
    classifier = heads.classifier(tiny.encoder(), labels=["bad", "good"])
    model = OwnStep(classifier.input, classifier.output)
    examples = keras_bert.Examples(["so good", "bad"], labels=["good", "bad"])
    with pytest.raises(ValueError, match="OwnStep has its own train_step, which finetune does not"):
        finetuning.finetune(model, examples)
