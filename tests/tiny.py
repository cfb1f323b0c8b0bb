"""A small BERT for tests, its vocabulary, data that it learns in seconds, and other helpers."""

import contextlib
import functools
import importlib.util

PIECES = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    "good", "bad", "film", "a", "##ly", "##s", "!", "this", "is", "so", "한", "##국", "국어",
]  # fmt: skip
# Labels and texts.
ROWS = [
    ("good", "this film is good!"), ("bad", "bad film"), ("good", "so good"), ("bad", "so bad!"),
] * 8  # fmt: skip


def encoder(**options):
    """Return a `BertEncoder` of width 8 with a preprocessor for the vocabulary `PIECES`."""
    import keras

    import keras_bert

    keras.utils.set_random_seed(7)
    defaults = {
        "vocab_size": len(PIECES),
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
    }
    if "preprocessor" not in options:
        # The copies share a tokenizer, whose functions TensorFlow traces only once.
        defaults["preprocessor"] = _preprocessor().with_options()
    return keras_bert.BertEncoder(**{**defaults, **options})


@functools.cache
def _preprocessor():
    import keras_bert

    preprocessor = keras_bert.Preprocessor(PIECES, sequence_length=8, max_sequence_length=32)
    # `with_options` shares the tokenizers if they exist.
    assert preprocessor.python_tokenizer is not None
    if importlib.util.find_spec("tensorflow"):
        assert preprocessor.tokenizer is not None
    return preprocessor


def learner(**options):
    """Return an encoder with one layer, large weights and no dropout, which learns quickly."""
    return encoder(
        hidden_size=16,
        num_hidden_layers=1,
        initializer_range=0.25,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **options,
    )


def examples(rows=ROWS, **options):
    """Return `Examples` with one label per text."""
    from keras_bert.data.examples import Examples

    return Examples([text for _, text in rows], labels=[label for label, _ in rows], **options)


def tagged():
    """Return `TaggedSentences`: films are works; "so" and the next word are a mood."""
    from keras_bert.tasks.tagging.data import TaggedSentences

    words = [["this", "film", "is", "so", "good"], ["so", "bad", "a", "films"], ["good", "!"]]
    tags = [["O", "B-work", "O", "B-mood", "I-mood"], ["B-mood", "I-mood", "O", "B-work"]]
    return TaggedSentences(words * 6, [*tags, ["O", "O"]] * 6)


def questions():
    """Return `Questions` whose answer is the word after "so"; without "so" they have none."""
    from keras_bert.tasks.question_answering.data import Questions

    contexts = ["this film is so good!", "a film so bad is this", "a good film", "so films"]
    answers = [[("good", 16)], [("bad", 10)], [], [("films", 3)]]
    return Questions(["is this bad"] * 24, contexts * 6, answers * 6)


def choices():
    """Return `Choices` of which the good one is right."""
    from keras_bert.tasks.multiple_choice.data import Choices

    texts = ["this film is", "a film", "this is a film", "films"]
    continuations = [
        ["so good", "so bad"],
        ["is bad", "is good"],
        ["bad!", "good!"],
        ["good", "bad"],
    ]
    return Choices(texts * 6, continuations * 6, [0, 1, 1, 0] * 6)


def rankings():
    """Return `RankingExamples` of which the documents with "good" are relevant."""
    from keras_bert.tasks.reranking.data import RankingExamples

    queries = ["this film", "a film", "is this"]
    documents = [["so bad", "so good"], ["good!", "bad!", "bad film"], ["is bad", "is good"]]
    scores = [[0, 1], [1, 0, 0], [0, 1]]
    return RankingExamples(queries * 8, documents * 8, scores * 8)


def user_warnings(caught):
    """Return the `UserWarning`s of `pytest.warns`; Keras' torch backend gives others."""
    return [each for each in caught if each.category is UserWarning]


def write_file(path, content):
    """Write a string as UTF-8, or bytes, to a file, without changing line ends; return the path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@contextlib.contextmanager
def eagerly():
    """Compile models to run eagerly within this context."""
    import keras

    plain = keras.Model.compile

    def compile(model, *args, **options):
        plain(model, *args, **{**options, "run_eagerly": True, "jit_compile": False})

    keras.Model.compile = compile
    try:
        yield
    finally:
        keras.Model.compile = plain


def embedder(pooling, layers=(), **options):
    """Return a model of `heads.embedder`.

    `layers` are (units, activation) of dense layers; `None` scales vectors to length 1.
    """
    import keras

    import keras_bert

    base = encoder(num_hidden_layers=1, initializer_range=0.5)
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.UnitNormalization(name="unit")
        if each is None
        else keras.layers.Dense(each[0], activation=each[1], bias_initializer="random_normal")
        for each in layers
    ]
    return keras_bert.heads.embedder(base, pooling=pooling, layers=layers, **options)


def encode(model, examples, max_length, **options):
    """Encode data as the task of a model does, also for lengths above those of the model."""
    from keras_bert.tasks import registry
    from keras_bert.tasks.keras_predictor import KerasPredictor

    task = registry.for_model(model)
    made = task.training_options.of(options, task.name)
    return task.encode(KerasPredictor(model).task_model, examples, max_length, made)
