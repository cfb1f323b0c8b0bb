"""Classification and regression of texts or pairs: one label, a set of labels, or a number."""

import warnings

import keras
import numpy as np
import scipy.special

from keras_bert.data.batching import REDUCTION
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.arguments import LONG_TEXTS
from keras_bert.runtime.label_types import typed
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.classification.head import classifier, regressor
from keras_bert.tasks.to_dataset import targets_of
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.text.text_windows import mean_per_text

HEADS = ("classification", "regression", "next_sentence")
MAX_LENGTH = 128
_FEW_LABELS = 20  # up to this many, there is no warning


def build(encoder, train):
    """Build a classifier or regressor for `Examples` with labels, label sets or scores."""
    pairs = train.text_pairs is not None
    if train.scores is not None:
        return regressor(encoder, pairs=pairs)
    labels, multi_label = train.label_names(), train.label_sets is not None
    if train.labels is None and not multi_label:
        raise ValueError(f"found no labels in {train.source}; give examples with labels")
    if multi_label and not labels:
        raise ValueError(f"{train.source}: needs at least one label; all label sets are empty")
    if not multi_label and len(labels) < 2:
        received = f"only {labels[0]!r:.80}" if labels else "none"
        raise ValueError(f"{train.source}: needs at least two labels; received {received}")
    if not multi_label and len(labels) > max(_FEW_LABELS, len(train) / 2):
        warnings.warn(
            f"{train.source}: {len(train)} texts have {len(labels)} different labels, such as "
            f"{labels[0]!r:.80}. Check the label column",
            stacklevel=level_of_caller(),
        )
    return classifier(encoder, labels=labels, pairs=pairs, multi_label=multi_label)


def compile_options(model):
    """Return loss and metrics of a model as arguments of `keras.Model.compile`."""
    output = find_output(model)
    if output.task == "regression":
        return {"loss": keras.losses.MeanSquaredError(reduction=REDUCTION)}
    if output.multi_label:
        return {"loss": keras.losses.BinaryCrossentropy(from_logits=True, reduction=REDUCTION)}
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=REDUCTION),
        # Keras creates a metric given by name in the first step, and traces the step twice.
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


def encode(model, examples, max_length, *, class_weight=None, long_texts=None):
    """Encode texts as `EncodedTexts`, with the targets of the model's head.

    `class_weight` is a dict with the weight of each label in the loss (other labels: 1), or
    `"balanced"`, inversely proportional to the frequency of each label. `long_texts` is
    `"truncate"`, `"window"` or `"error"`; `None` takes that of the model.
    """
    output = find_output(model)
    if output.pairs != (examples.text_pairs is not None):
        if output.pairs:
            raise ValueError(
                f"{model.name!r} reads pairs of texts; {examples.source} has single texts; give "
                "the column of the second text (--text-pair)"
            )
        raise ValueError(
            f"{model.name!r} reads single texts; {examples.source} has pairs of texts. Give single "
            "texts, or train on pairs"
        )
    targets = targets_of(examples, output)
    weights = None
    if class_weight is not None:
        weights = _weights(output, examples, targets, class_weight)
    long_texts = output.long_texts if long_texts is None else long_texts
    if long_texts not in LONG_TEXTS:
        raise ValueError(
            f"long_texts must be one of {', '.join(LONG_TEXTS)}; received {long_texts!r}"
        )
    if long_texts == "window" and output.pairs:
        raise ValueError('long_texts="window" is only for single texts; use "truncate" for pairs')
    in_windows = long_texts == "window"
    encoded = EncodedTexts(
        find_encoder(model).preprocessor.python_tokenizer,
        examples.text_columns(),
        max_length,
        targets=targets,
        weights=weights,
        in_windows=in_windows,
    )
    if long_texts == "error" and encoded.truncated:
        raise ValueError(
            f"{examples.source}: {encoded.truncated} of {len(examples)} texts have more than "
            f'{max_length} tokens; shorten them, or use long_texts="truncate" or "window"'
        )
    return encoded


def _weights(output, examples, targets, class_weight):
    """Return the weight of each text, float32 (n,)."""
    if targets is None or targets.ndim > 1:
        raise ValueError("class_weight is only for training a classifier with one label per text")
    if class_weight == "balanced":
        counts = np.bincount(targets, minlength=len(output.labels))
        by_class = len(targets) / (len(counts) * np.maximum(counts, 1))
    else:
        if not isinstance(class_weight, dict):
            raise ValueError(
                f'class_weight must be "balanced" or a dict; received {class_weight!r}'
            )
        given = {str(label): weight for label, weight in class_weight.items()}
        unknown = sorted(set(given) - set(output.labels))
        if unknown:
            raise ValueError(
                f"class_weight has {unknown[0]!r:.80}, which is not a label; the labels are "
                f"{', '.join(output.labels[:20])}"
            )
        by_class = np.array([given.get(label, 1.0) for label in output.labels], np.float32)
        if not (np.isfinite(by_class).all() and by_class.min() >= 0 and by_class[targets].any()):
            raise ValueError(
                "class_weight must be at least 0 for each label, and above 0 for a label in the "
                f"data; received {class_weight!r:.80}"
            )
    return by_class[targets].astype(np.float32)


def decode(model, examples, encoded, outputs):
    """Return the answers for the outputs of each text, (classes,) or (1,).

    These are the probabilities, float32 (n, classes), or a regressor's scores, float32 (n,).
    """
    output = find_output(model)
    logits = np.reshape(outputs, (len(outputs), -1)).astype(np.float32)
    if output.task == "regression":
        return mean_per_text(encoded.text_of, logits[:, 0])
    if output.multi_label:
        return mean_per_text(encoded.text_of, scipy.special.expit(logits))
    return mean_per_text(encoded.text_of, scipy.special.softmax(logits, axis=-1))


def score(output, examples, answers):
    """Score answers with the metrics of the GLUE benchmark: a dict of floats, the main one first.

    `f1` is of the second of two labels, `macro_f1` of more labels. `mcc` is the Matthews
    correlation. `majority` is the accuracy of always predicting the most frequent label.
    """
    from scipy import stats
    from sklearn import metrics

    if output.task == "regression":
        given = np.array(examples.scores)
        constant = np.ptp(given) == 0 or np.ptp(answers) == 0
        return {
            "pearson": 0.0 if constant else float(stats.pearsonr(answers, given).statistic),
            "spearman": 0.0 if constant else float(stats.spearmanr(answers, given).statistic),
            "rmse": float(np.sqrt(np.mean((answers - given) ** 2))),
        }
    targets = targets_of(examples, output)
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
        # scikit-learn warns if there is only one label.
        "mcc": float(metrics.matthews_corrcoef(targets, chosen)) if len(seen) > 1 else 0.0,
        "majority": examples.majority_share(),
    }


def report(output, examples, answers):
    """Return `precision`, `recall`, `f1` and `support` per label; nothing for a regressor."""
    from sklearn import metrics

    if output.task == "regression":
        return {}
    targets = targets_of(examples, output)
    chosen = answers >= 0.5 if output.multi_label else answers.argmax(axis=1)
    columns = metrics.precision_recall_fscore_support(
        targets, chosen, labels=range(len(output.labels)), zero_division=0
    )
    names = ("precision", "recall", "f1", "support")
    return {
        label: {name: column[index].item() for name, column in zip(names, columns, strict=True)}
        for index, label in enumerate(output.labels)
    }


def metric_names(output, examples):
    """Return the names of the metrics of `score`, the main one first, without `majority`."""
    if output.task == "regression":
        return "pearson", "spearman", "rmse"
    if output.multi_label:
        return "micro_f1", "macro_f1", "exact_match"
    return "accuracy", "f1" if len(output.labels) == 2 else "macro_f1", "mcc"


def separator(labels):
    """Return the first of `,;|/+` that occurs in no label, or the last one."""
    return next((sign for sign in ",;|/" if not any(sign in name for name in labels or ())), "+")


def records(model, examples, answers, probabilities=False):
    """Yield a dict per text: `score`; `label` and `score`; or `labels` and `scores`; and the text.

    For label sets, `labels` is a list and `scores` has the probability of every label. With
    `probabilities`, single labels have `scores` too. `text` and `text_pair` come last.
    """
    output = find_output(model)
    labels = [typed(label, output.label_type) for label in output.labels or ()]
    for index, row in enumerate(answers):
        record: dict[str, object] = {}
        if output.task == "regression":
            record["score"] = float(row)
        elif output.multi_label:
            record["labels"] = [labels[label] for label in np.flatnonzero(row >= 0.5)]
        else:
            record |= {"label": labels[row.argmax()], "score": float(row.max())}
        if output.multi_label or probabilities:
            record["scores"] = dict(zip(output.labels, row.tolist(), strict=True))
        record["text"] = examples.texts[index]
        if examples.text_pairs is not None:
            record["text_pair"] = examples.text_pairs[index]
        yield record
