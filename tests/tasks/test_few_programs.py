"""On JAX, each shape of a batch is a program to compile; a run has at most three."""

import contextlib
import logging
import re

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.data.examples import Examples
from keras_bert.runtime import distribution
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.multiple_choice.data import Choices
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.tagging.data import TaggedSentences
from tests import tiny

jax_only = pytest.mark.skipif(keras.backend.backend() != "jax", reason="counts JAX's programs")
COUNT = 40
LENGTHS = np.random.default_rng(0).integers(1, 250, COUNT).tolist()
TEXTS = ["so " * length for length in LENGTHS]
LABELS = ["good", "bad"] * (COUNT // 2)


def encoder(**options):
    """Return an encoder for texts of 3 to 250 tokens."""
    options = {"max_position_embeddings": 256, "num_hidden_layers": 1, "pooling": "mean", **options}
    base = tiny.encoder(**options)
    base.preprocessor.max_sequence_length = 256
    return base


def questions():
    contexts = [f"{text}good" for text in TEXTS]
    answers = [[("good", context.index("good"))] for context in contexts]
    return Questions(["is this bad"] * COUNT, contexts, answers)


DATA = {
    "texts": lambda: Examples(TEXTS, labels=LABELS),
    "tags": lambda: TaggedSentences(
        [text.split() for text in TEXTS], [["B-work", *["O"] * (n - 1)] for n in LENGTHS]
    ),
    "questions": questions,
    "choices": lambda: Choices(["good"] * COUNT, [[text, "bad"] for text in TEXTS], [0] * COUNT),
    "embeddings": lambda: EmbeddingExamples([[text, f"{text}good"] for text in TEXTS]),
}


class Programs(logging.Handler):
    """Lists the programs of models that JAX compiles."""

    def __init__(self):
        super().__init__()
        self.names = []

    def emit(self, record):
        name = re.search(r"Compiling jit\((train_step|predict_step|forward)\)", record.getMessage())
        if name:
            self.names.append(name[1])


@contextlib.contextmanager
def compiled():
    import jax

    programs = Programs()
    logger = logging.getLogger("jax")
    logger.addHandler(programs)
    try:
        with jax.log_compiles():
            yield programs.names
    finally:
        logger.removeHandler(programs)


@pytest.fixture
def eager_to_compile(monkeypatch):
    """Make compilation look free, so that only the limit holds it back."""
    monkeypatch.setattr(distribution, "positions_per_compilation", lambda: 1e-3)


@jax_only
@pytest.mark.parametrize("task", DATA)
def test_fine_tuning_with_scores(eager_to_compile, task):
    data = DATA[task]()
    with compiled() as names:
        keras_bert.finetune(
            encoder(), data, data, epochs=2, batch_size=8, max_length=256, show_progress=False
        )
    assert "train_step" in names and "forward" in names
    assert len(names) <= 3, names


@jax_only
def test_a_pipeline_with_texts_of_all_lengths(eager_to_compile):
    pipeline = keras_bert.pipeline(encoder(), pooling="mean", batch_size=4)
    with compiled() as names:
        vectors = pipeline(TEXTS)
        for text in ["so", *TEXTS]:
            pipeline(text)
    assert len(names) <= 6, names  # three lengths, for many texts and for one
    alone = np.stack([pipeline(text) for text in TEXTS[:5]])
    np.testing.assert_allclose(vectors[:5], alone, atol=1e-5)


@jax_only
def test_a_scored_model_is_not_compiled_again():
    data = DATA["texts"]()
    model, _ = keras_bert.finetune(
        encoder(), data, data, epochs=1, max_length=256, show_progress=False
    )
    with compiled() as names:
        keras_bert.evaluate(model, data)
        keras_bert.pipeline(model)(TEXTS)
    assert names == []


def test_accelerators_get_more_rows_of_short_texts(eager_to_compile, monkeypatch):
    predictor = KerasPredictor(keras_bert.heads.classifier(encoder(), 2))
    expected = predictor.answers(Examples(TEXTS), batch_size=2)
    rows = []
    plain = predictor.forward_pass

    def compute(inputs):
        rows.append(inputs["input_word_ids"].shape[0])
        return plain.compute(inputs)

    predictor.forward_pass = type(plain)(compute, plain.compiles)
    monkeypatch.setattr(distribution, "has_accelerator", lambda: True)
    answers = predictor.answers(Examples(TEXTS), batch_size=2)
    assert min(rows) < max(rows)
    assert 2 * 512 // 256 <= max(rows) <= 2 * 512 // 3
    np.testing.assert_allclose(answers, expected, atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="for JAX and torch")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits(precision):
    model = keras_bert.heads.classifier(encoder(initializer_range=0.5), labels=["a", "b"])
    exact = keras_bert.pipeline(model)(TEXTS, top_k=None)
    rounded = keras_bert.pipeline(model, precision=precision)(TEXTS, top_k=None)
    differences = [abs(a[0]["score"] - b[0]["score"]) for a, b in zip(exact, rounded, strict=True)]
    assert 0 < max(differences) < 0.05
    assert model.get_layer("bert_encoder").dtype_policy.name == "float32"
    again = keras_bert.pipeline(model)(TEXTS, top_k=None)
    assert again == exact
    with pytest.raises(ValueError, match="precision must be one of"):
        keras_bert.pipeline(model, precision="int4")
