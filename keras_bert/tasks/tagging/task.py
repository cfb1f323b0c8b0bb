"""Tagging: one label for each word of a sentence, as in named entity recognition.

A word is labeled at its first token; other positions have weight 0 (section 5.3 of the BERT paper).
Long sentences are cut into overlapping windows. The label of a word comes from the window in which
the word has the most context.
"""

import collections
import itertools

import keras
import numpy as np
import scipy.special

from keras_bert.data.examples import unknown_label
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.label_types import typed
from keras_bert.tasks.tagging import windows as tag_windows
from keras_bert.tasks.tagging.head import tagger
from keras_bert.tasks.tagging.tag_schemes import entities, find_scheme
from keras_bert.text import token_ids

HEADS = ("tagging",)
MAX_LENGTH = 128

_CHARACTER_SHARE = 0.99  # see `are_characters`


def build(encoder, train):
    """Build a tagger for `TaggedSentences` with tags.

    If the words are single characters, the model splits texts into characters.
    """
    labels = train.label_names()
    if len(labels) < 2:
        received = f"only {labels[0]!r:.80}" if labels else "none"
        raise ValueError(f"{train.source}: needs at least two tags; received {received}")
    return tagger(encoder, labels=labels, characters=are_characters(train.words))


def are_characters(sentences):
    """Return True if more than 99% of the words are single characters, as in KLUE's NER data."""
    sizes = np.array([len(word) for sentence in sentences for word in sentence])
    return bool((sizes == 1).sum() > _CHARACTER_SHARE * len(sizes))


def compile_options(model):
    """Return loss and metrics as arguments of `keras.Model.compile`, for weights (batch, seq).

    The loss is a sum, because the weights of `EncodedSentences.batch` already divide it.
    """
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


def encode(model, examples, max_length, *, stride=None):
    """Encode sentences as `EncodedSentences`, see `tag_windows.encode`."""
    tokenizer = find_encoder(model).preprocessor.python_tokenizer
    words = token_ids.tokenize(tokenizer, itertools.chain.from_iterable(examples.words))
    targets = None
    if examples.tags is not None:
        targets = targets_of(examples, find_output(model).labels)
    return tag_windows.encode(
        words.ids,
        words.lengths,
        examples.words,
        tokenizer.special_ids,
        max_length,
        stride=stride,
        targets=targets,
    )


def targets_of(examples, labels):
    """Return the index of each word's tag in the labels, int32 (words,).

    An unknown tag is an `UnknownLabel`, which is a `ValueError`.
    """
    index = {label: number for number, label in enumerate(labels)}
    for number, row in enumerate(examples.tags, examples.first):
        unknown = next((str(tag) for tag in row if str(tag) not in index), None)
        if unknown is not None:
            location = f"{examples.source}, sentence {number}"
            raise unknown_label(location, unknown, labels, what="tag")
    return np.array([index[str(tag)] for row in examples.tags for tag in row], np.int32)


def decode(model, examples, encoded, outputs):
    """Return a list of (tag, probability) per sentence, see `tag_windows.decode`.

    `outputs` has the logits of each window, (seq, labels).
    """
    probabilities = [scipy.special.softmax(np.asarray(o, np.float32), axis=-1) for o in outputs]
    labels = find_output(model).labels
    return tag_windows.decode(labels, examples.words, encoded, probabilities)


def score(output, examples, answers):
    """Score answers: `f1`, `precision`, `recall` of entities, `accuracy`, `majority`.

    Entities are scored for the schemes of `data.tag_schemes`, as CoNLL's script does. If `output`
    is `None`, the tags of the examples decide if entities are scored.
    Source: https://www.clips.uantwerpen.be/conll2003/ner/bin/conlleval and seqeval.
    """
    if examples.tags is None:
        raise ValueError(f"found no tags in {examples.source}; give sentences with tags")
    predicted_tags = [[tag for tag, _ in answer] for answer in answers]
    pairs = list(zip(examples.tags, predicted_tags, strict=True))
    metrics = {}
    scheme = _scheme(output, examples)
    if scheme is not None:
        correct = 0
        predicted = 0
        expected = 0
        for gold, row in pairs:
            gold_entities = entities(gold, scheme)
            predicted_entities = entities(row, scheme)
            correct += len(gold_entities & predicted_entities)
            predicted += len(predicted_entities)
            expected += len(gold_entities)
        metrics = {
            "f1": 2 * correct / max(predicted + expected, 1),
            "precision": correct / max(predicted, 1),
            "recall": correct / max(expected, 1),
        }
    same = []
    for gold, row in pairs:
        same += [str(expected_tag) == tag for expected_tag, tag in zip(gold, row, strict=True)]
    return {**metrics, "accuracy": float(np.mean(same)), "majority": examples.majority_share()}


def report(output, examples, answers):
    """Return `precision`, `recall`, `f1` and `support` per entity type, or else per tag."""
    correct_of: collections.Counter[str] = collections.Counter()
    predicted_of: collections.Counter[str] = collections.Counter()
    expected_of: collections.Counter[str] = collections.Counter()
    scheme = _scheme(output, examples)
    for gold, answer in zip(examples.tags, answers, strict=True):
        expected = _scored_units(gold, scheme)
        predicted = _scored_units([tag for tag, _ in answer], scheme)
        correct_of.update(name for name, *_ in expected & predicted)
        predicted_of.update(name for name, *_ in predicted)
        expected_of.update(name for name, *_ in expected)
    rows = {}
    for name in sorted({*predicted_of, *expected_of}):
        correct = correct_of[name]
        rows[name] = {
            "precision": correct / max(predicted_of[name], 1),
            "recall": correct / max(expected_of[name], 1),
            "f1": 2 * correct / max(predicted_of[name] + expected_of[name], 1),
            "support": expected_of[name],
        }
    return rows


def _scored_units(tags, scheme):
    """Return what a report counts in a sentence: the entities, or (tag, index) of each word."""
    if scheme is None:
        return set(zip(map(str, tags), itertools.count()))
    return entities(tags, scheme)


def metric_names(output, examples):
    """Return the names of the metrics of `score`, the main one first, without `majority`."""
    if _scheme(output, examples) is None:
        return ("accuracy",)
    return ("f1", "precision", "recall", "accuracy")


def _scheme(output, examples):
    """Return the `TagScheme` of the tags; `None` if they mark no entities."""
    # Use the labels of the model, so that all epochs have the same metrics, even if the file and
    # the answers of an epoch hold no entity.
    labels = examples.label_names() if output is None else output.labels
    return find_scheme(map(str, labels))


def records(model, examples, answers):
    """Yield a dict per sentence with the lists `words`, `tags` and `scores`."""
    label_type = find_output(model).label_type
    for words, answer in zip(examples.words, answers, strict=True):
        tags = [typed(tag, label_type) for tag, _ in answer]
        scores = [float(score) for _, score in answer]
        yield {"words": words, "tags": tags, "scores": scores}
