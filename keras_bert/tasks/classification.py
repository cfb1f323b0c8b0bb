"""The tasks of whole texts: one class, any number of classes, or a number for each.

A task is a module with the same functions, which `train` and `predict` call:

    HEADS              the heads it trains, names of functions in `keras_bert.heads`
    MAX_LENGTH         positions of a sequence, unless told otherwise
    build              encoder and training data to a model with a fresh head
    compile_options    its loss
    encode             model and data to what `batches.Batches` takes
    decode             the model's outputs to answers, one for each example
    score              answers to metrics; the first one is the one that counts
    metric_names       what these are, but for `majority`, known beforehand
    header, lines      answers as a file
    records            answers as JSON objects

The others are `tagging`, `questions` and `choices`.
"""

import keras
import numpy as np
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.batching import REDUCTION
from keras_bert.text.fast_tokenizer import tokenize_function

HEADS = ("classifier", "regressor")
MAX_LENGTH = 128
_CHUNK = 4096  # texts tokenized at once


def build(encoder, train):
    """Puts a fresh head for the training data on an encoder.

    Args:
        encoder: a `BertEncoder`.
        train: `Examples` with labels, label sets or scores.

    Returns:
        A classifier or a regressor of `keras_bert.heads`.

    Raises:
        ValueError: there are no labels, or one only.

    Example:

    >>> from keras_bert import BertEncoder
    >>> from keras_bert.data.tabular import Examples
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> build(encoder, Examples(["a", "b"], scores=[0.5, 3])).name
    'regressor'
    """
    pairs = train.text_pairs is not None
    if train.scores is not None:
        return heads.regressor(encoder, pairs=pairs)
    labels, multi_label = train.label_names(), train.label_sets is not None
    if train.labels is None and not multi_label:
        raise ValueError(f"{train.source}: has no labels to learn from")
    if multi_label and not labels:
        raise ValueError(f"{train.source}: needs at least one label; all of its sets are empty")
    if not multi_label and len(labels) < 2:
        received = f"only {labels[0]!r}" if labels else "none"
        raise ValueError(
            f"{train.source}: needs at least two labels to tell apart; received {received}"
        )
    return heads.classifier(encoder, labels=labels, pairs=pairs, multi_label=multi_label)


def compile_options(model):
    """The loss of the task.

    Args:
        model: from `build`.

    Returns:
        Keyword arguments of `model.compile`.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> compile_options(heads.regressor(encoder))["loss"].name
    'mean_squared_error'
    """
    output = heads.find_output(model)
    if output.task == "regressor":
        return {"loss": keras.losses.MeanSquaredError(reduction=REDUCTION)}
    if output.multi_label:
        return {"loss": keras.losses.BinaryCrossentropy(from_logits=True, reduction=REDUCTION)}
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=REDUCTION),
        # Not by name: it would be made in the first step, which TensorFlow then traces twice.
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


class EncodedTexts:
    """Texts as ids, tokenized once; what `batches.Batches` takes.

    Args:
        preprocessor: the `Preprocessor` of the encoder.
        examples: `Examples`.
        max_length: positions of the longest sequence; what is longer is cut.
        targets: an array with a row for each text, or `None`.
        weights: float32 (n,), the weight of each text in the loss; `None`: 1.

    Attributes:
        lengths: positions each sequence takes, specials included, at most `max_length`;
            int (n,).
        max_length: as given.
        pad_id: the id where no piece is.
        truncated: how many texts were cut.
        empty: for each column of texts how many are empty or invisible, so that they have no
            pieces.
        without_pieces: all of those.
    """

    def __init__(self, preprocessor, examples, max_length, targets=None, weights=None):
        self.max_length = max_length
        self.pad_id = preprocessor.tokenizer.token_id("[PAD]")
        self._preprocessor = preprocessor
        self._targets = targets
        self._weights = np.ones(len(examples), np.float32) if weights is None else weights
        tokenize = tokenize_function(preprocessor.tokenizer)
        columns = [examples.texts]
        if examples.text_pairs is not None:
            columns.append(examples.text_pairs)
        self._ids = [tokenize_in_chunks(tokenize, texts) for texts in columns]
        total = sum(ids.row_lengths().numpy() for ids in self._ids) + 1 + len(self._ids)
        self.lengths = np.minimum(total, max_length)
        self.truncated = int(np.sum(total > max_length))
        self.empty = [int(np.sum(ids.row_lengths().numpy() == 0)) for ids in self._ids]
        self.without_pieces = sum(self.empty)

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """Inputs, targets and weights of some texts.

        Args:
            rows: which texts, int (batch,).
            length: positions of the inputs.

        Returns:
            A dict of three int32 arrays (batch, length), the targets (batch, ...) and float32
            weights (batch,); both `None` without labels.
        """
        packed = self._preprocessor.pack(
            *(tf.gather(ids, rows) for ids in self._ids),
            sequence_length=length,
            max_sequence_length=self.max_length,
        )
        inputs = {key: value.numpy() for key, value in packed.items()}
        if self._targets is None:
            return inputs, None, None
        return inputs, self._targets[rows], self._weights[rows]


def tokenize_in_chunks(tokenize, texts):
    """Tokenizes many texts without a peak of memory.

    Args:
        tokenize: from `tokenize_function`.
        texts: list of strings.

    Returns:
        A `tf.RaggedTensor` int32 (texts, pieces).

    Example:

    >>> from keras_bert.text.tokenizer import WordPieceTokenizer
    >>> tokenize_in_chunks(WordPieceTokenizer(["[UNK]", "a"]).tokenize, ["a a", ""]).to_list()
    [[1, 1], []]
    """
    texts = [text.encode("utf-8", "ignore") for text in texts]
    parts = [
        tokenize(tf.constant(texts[start : start + _CHUNK], tf.string))
        for start in range(0, max(len(texts), 1), _CHUNK)
    ]
    return tf.concat(parts, axis=0)


def encode(model, examples, max_length, *, class_weight=None):
    """Texts as ids, with the targets of the model's head.

    Args:
        model: a classifier or regressor.
        examples: `Examples`; without labels there are no targets.
        max_length: positions at which texts are cut.
        class_weight: weight of each label in the loss, a dict, 1 for what it does not name;
            `"balanced"`: in inverse proportion to how often it occurs.

    Returns:
        The `EncodedTexts`.

    Raises:
        ValueError: a label the model does not have, or pairs for a model of single texts (or
            the other way round).

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor
    >>> from keras_bert.data.tabular import Examples
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> model = heads.classifier(encoder, labels=["no", "yes"])
    >>> inputs, targets, _ = encode(model, Examples(["good"], labels=["yes"]), 8).batch([0], 3)
    >>> inputs["input_word_ids"].tolist(), targets.tolist()
    ([[2, 4, 3]], [1])
    """
    output = heads.find_output(model)
    if output.pairs != (examples.text_pairs is not None):
        wants, has = ("pairs of texts", "single texts")[:: 1 if output.pairs else -1]
        advice = "; name the column of the second text (--text-pair)" if output.pairs else ""
        raise ValueError(f"{model.name!r} reads {wants}; {examples.source} has {has}{advice}")
    targets = _targets(output, examples)
    weights = None
    if class_weight is not None:
        weights = _weights(output, examples, targets, class_weight)
    preprocessor = heads.find_encoder(model).preprocessor
    return EncodedTexts(preprocessor, examples, max_length, targets, weights)


def _targets(output, examples):
    kinds = {"labels": examples.labels, "scores": examples.scores}
    kinds["label sets"] = examples.label_sets
    wanted = "label sets" if output.multi_label else "labels"
    wanted = "scores" if output.task == "regressor" else wanted
    for kind, column in kinds.items():
        if column is not None and kind != wanted:
            raise ValueError(f"{examples.source}: has {kind}, but the model knows {wanted}")
    if output.task == "regressor":
        scores = examples.scores
        return None if scores is None else np.array(scores, np.float32)[:, None]
    place = {label: index for index, label in enumerate(output.labels)}
    given = examples.label_sets if output.multi_label else examples.labels
    if given is None:
        return None
    unknown = sorted(set(examples.label_names()) - set(place))
    if unknown:
        rows = enumerate(given)
        row = next(n for n, its in rows if unknown[0] in (its if output.multi_label else [its]))
        raise ValueError(
            f"{examples.place(row)}: has the label {unknown[0]!r}, which is none of the model's: "
            f"{', '.join(output.labels[:20])}"
        )
    if not output.multi_label:
        return np.array([place[label] for label in given], np.int32)
    targets = np.zeros((len(given), len(place)), np.float32)
    for row, labels in zip(targets, given, strict=True):
        row[[place[label] for label in labels]] = 1
    return targets


def _weights(output, examples, targets, class_weight):
    if targets is None or targets.ndim > 1:
        raise ValueError("class_weight is for classifiers with one label a text")
    if class_weight == "balanced":
        counts = np.bincount(targets, minlength=len(output.labels))
        by_class = len(targets) / (len(counts) * np.maximum(counts, 1))
    else:
        if not isinstance(class_weight, dict):
            raise ValueError(
                f'class_weight must be "balanced" or a dict; received {class_weight!r}'
            )
        given = {str(label): weight for label, weight in class_weight.items()}  # as labels are
        unknown = sorted(set(given) - set(output.labels))
        if unknown:
            raise ValueError(f"class_weight names {unknown[0]!r}, which is no label")
        by_class = np.array([given.get(label, 1.0) for label in output.labels], np.float32)
        if not (np.isfinite(by_class).all() and by_class.min() >= 0 and by_class[targets].any()):
            raise ValueError(
                "class_weight must be numbers from 0, not all of them 0; received "
                f"{class_weight!r:.80}"
            )
    return by_class[targets].astype(np.float32)


def decode(model, examples, encoded, outputs):
    """The answers in the model's outputs.

    Args:
        model: a classifier or regressor.
        examples, encoded: what the outputs are for.
        outputs: list of float arrays (classes,) or (1,), one for each text.

    Returns:
        For a classifier float32 probabilities (n, classes), for a regressor numbers (n,).
    """
    output = heads.find_output(model)
    logits = np.reshape(outputs, (len(examples), -1)).astype(np.float32)
    if output.task == "regressor":
        return logits[:, 0]
    if output.multi_label:
        return np.exp(-np.logaddexp(0, -logits))  # the sigmoid, without an overflow
    return softmax(logits)


def softmax(logits):
    """Probabilities of logits along the last axis, as an array.

    Example:

    >>> softmax(np.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def score(model, examples, answers):
    """How good answers are.

    Source: the GLUE benchmark's choice of metrics; scikit-learn and SciPy compute them.

    Args:
        model: the classifier or regressor that gave the answers.
        examples: `Examples` with labels or scores.
        answers: from `decode`.

    Returns:
        A dict of floats, the first the one that counts. One label a text: `accuracy`, `f1` (of the
        second of two labels; `macro_f1`, the mean over those that occur, if there are more), `mcc`
        (Matthews), and `majority`, the accuracy of guessing the most frequent label. Label
        sets: `micro_f1`, `macro_f1`, `exact_match`. Scores: `pearson`, `spearman`, `rmse`.
    """
    from scipy import stats
    from sklearn import metrics

    output = heads.find_output(model)
    if output.task == "regressor":
        given = np.array(examples.scores)
        constant = np.ptp(given) == 0 or np.ptp(answers) == 0
        return {
            "pearson": 0.0 if constant else float(stats.pearsonr(answers, given).statistic),
            "spearman": 0.0 if constant else float(stats.spearmanr(answers, given).statistic),
            "rmse": float(np.sqrt(np.mean((answers - given) ** 2))),
        }
    targets = _targets(output, examples)
    if output.multi_label:
        chosen = answers >= 0.5
        return {
            "micro_f1": float(metrics.f1_score(targets, chosen, average="micro", zero_division=0)),
            "macro_f1": float(metrics.f1_score(targets, chosen, average="macro", zero_division=0)),
            "exact_match": float(np.mean((targets == chosen).all(axis=1))),
        }
    chosen = answers.argmax(axis=1)
    seen = {*chosen, *targets}
    average, name = ("binary", "f1") if len(output.labels) == 2 else ("macro", "macro_f1")
    return {
        "accuracy": float(np.mean(chosen == targets)),
        name: float(metrics.f1_score(targets, chosen, average=average, zero_division=0)),
        # Of one label alone scikit-learn warns.
        "mcc": float(metrics.matthews_corrcoef(targets, chosen)) if len(seen) > 1 else 0.0,
        "majority": examples.majority_share(),
    }


def metric_names(model, examples):
    """The names that `score` will give, but for `majority`, the first the one that counts.

    Args:
        model: a classifier or regressor.
        examples: `Examples`; they do not matter here.

    Returns:
        A tuple of strings.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> metric_names(heads.classifier(encoder, 3), None)
    ('accuracy', 'macro_f1', 'mcc')
    """
    output = heads.find_output(model)
    if output.task == "regressor":
        return "pearson", "spearman", "rmse"
    if output.multi_label:
        return "micro_f1", "macro_f1", "exact_match"
    return "accuracy", "f1" if len(output.labels) == 2 else "macro_f1", "mcc"


def header(model):
    """The first line of a file of answers: tab-separated names of columns."""
    output = heads.find_output(model)
    if output.task == "regressor":
        return "score"
    if output.multi_label:
        return "labels\t" + "\t".join(output.labels)
    return "label\tscore"


def lines(model, examples, answers):
    """The lines of a file of answers, one for each text.

    Args:
        model: the model that gave the answers.
        examples: what they are for.
        answers: from `decode`.

    Yields:
        Strings without a line end: `score`; or the label and its probability; or for label
        sets the labels with `separator` between them and the probability of each label.
    """
    output = heads.find_output(model)
    between = separator(output.labels)
    for row in answers:
        if output.task == "regressor":
            yield f"{row:.4f}"
        elif output.multi_label:
            chosen = between.join(output.labels[index] for index in np.flatnonzero(row >= 0.5))
            yield "\t".join([chosen, *(f"{probability:.4f}" for probability in row)])
        else:
            yield f"{output.labels[row.argmax()]}\t{row.max():.4f}"


def separator(labels):
    """What stands between labels in one field: a comma, or another sign that is in none of them.

    Args:
        labels: all that a model knows, or `None`.

    Returns:
        One of `,;|/+`, the last where all of the others are in some label.

    Example:

    >>> separator(["toxic", "rude"]), separator(["toxic, or rude", "kind"])
    (',', ';')
    """
    return next((sign for sign in ",;|/" if not any(sign in name for name in labels or ())), "+")


def records(model, examples, answers):
    """The answers by name, for other files than TSV.

    Args:
        model, examples, answers: as for `lines`.

    Yields:
        A dict for each text: `score`; or `label` and `score`; or for label sets `labels`, a list,
        and `scores`, the probability of each label.
    """
    output = heads.find_output(model)
    for row in answers:
        if output.task == "regressor":
            yield {"score": float(row)}
        elif output.multi_label:
            chosen = [output.labels[index] for index in np.flatnonzero(row >= 0.5)]
            yield {"labels": chosen, "scores": dict(zip(output.labels, row.tolist(), strict=True))}
        else:
            yield {"label": output.labels[row.argmax()], "score": float(row.max())}
