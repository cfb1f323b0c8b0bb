"""Small models and data of every task, taken from the registry of tasks.

A new task is in every property as soon as it is in `registry.TASKS`. If it reads a new class of
data, add a function for that class to `_DATA`.
"""

import itertools

import keras

from keras_bert.data.examples import Examples
from keras_bert.tasks import registry
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.multiple_choice.data import Choices
from keras_bert.tasks.question_answering.data import Questions
from keras_bert.tasks.reranking.data import RankingExamples
from keras_bert.tasks.tagging.data import TaggedSentences
from tests import tiny

NAMES = registry.names()  # of tasks and their variants
TRAINED_NAMES = [name for name in NAMES if not registry.by_name(name).is_pretraining]

# Texts at the borders of the tokenizer's and the engines' rules.
ODD_TEXTS = [
    "", " ", "\t\n", "\u3000", "\u200b", "\x00", "a\x00b", "\ufffd", "\ufeffgood",
    "zzz", "zzz yyy xxx", "?" * 40, "good", "GOOD", "good " * 9, "a" * 199, "a" * 200, "a" * 201,
    "a" * 10_000, "good " * 2_000, "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165",
    "\u1112\u1161\u11ab", "ㅎㅏㄴ", "ㅋㅋㅋ", "한국어는", "日本語", "東京 film", "\U00020000",
    "😀", "👩\u200d👩\u200d👧", "🇰🇷", "good😀film", "e\u0301", "é", "İstanbul", "ΣΟΦΟΣ", "straße",
    "[MASK]", "[CLS] good [SEP]", "[UNK]", "[PAD] [PAD]", "##ly", "good##ly", "!", "!!!", "...",
    "a!b", "don't", "-100", "1e400", "NaN", "null", "\u202egood\u202c", "\u00adgood", "a\u00a0film",
    "good\r\nbad", "line\u2028line", '"quoted, text"', "<b>bad</b>", "\\n", "%s {0} ${HOME}",
]  # fmt: skip


def labels_of(name):
    """Return one label per row of `tiny.ROWS`, of the kind that a task or variant reads."""
    labels = [label for label, _ in tiny.ROWS]
    if name == "regression":
        return [4.0 if label == "good" else 1.0 for label in labels]
    if name == "multi_label":
        return [(label, "film") if label == "good" else (label,) for label in labels]
    return labels


def _examples(name):
    texts = [text for _, text in tiny.ROWS]
    pairs = {"text_pairs": texts[1:] + texts[:1]} if name in ("pair", "next_sentence") else {}
    if registry.by_name(name).is_pretraining:
        return Examples(texts, **pairs)
    argument = {"multi_label": "label_sets", "regression": "scores"}.get(name, "labels")
    return Examples(texts, **{argument: labels_of(name)}, **pairs)


def _rows_of_texts(name):
    pairs = [
        ("this film", "so good"), ("a film", "good!"), ("is this", "is good"), ("bad", "so bad"),
    ]  # fmt: skip
    return EmbeddingExamples(pairs * 6)


_DATA = {
    Examples: _examples,
    TaggedSentences: lambda name: tiny.tagged(),
    Questions: lambda name: tiny.questions(),
    Choices: lambda name: tiny.choices(),
    EmbeddingExamples: _rows_of_texts,
    RankingExamples: lambda name: tiny.rankings(),
}


def data(name):
    """Return training data of a task or variant."""
    kind = registry.by_name(name).data[0]
    if kind not in _DATA:
        raise NotImplementedError(f"add a function that makes {kind.__name__} to _DATA")
    return _DATA[kind](name)


def model(name, **encoder_options):
    """Return a small model of a task or variant, whose weights all differ from 0."""
    encoder = tiny.encoder(**{"num_hidden_layers": 1, "initializer_range": 0.5, **encoder_options})
    task = registry.by_name(name)
    if task.is_pretraining:
        built = task.head_function()(encoder)
    else:
        built = task.build(encoder, data(name))
    vary_weights(built)
    return built


def vary_weights(built):
    """Add small distinct numbers to all weights, so that a weight that is lost changes outputs."""
    seeds = itertools.count()
    for weight in built.weights:
        if "float" in str(weight.dtype):
            noise = keras.random.normal(weight.shape, stddev=0.1, seed=next(seeds))
            weight.assign_add(keras.ops.cast(noise, weight.dtype))
