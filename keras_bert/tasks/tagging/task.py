"""Tagging: one label for each word of a sentence, as in named entity recognition.

A word is labeled at its first token; other positions have weight 0 (section 5.3 of the BERT paper).
Long sentences are cut into overlapping windows. The label of a word comes from the window in which
the word has the most context.
"""

import collections
import dataclasses
import functools
import itertools
import os
import typing

import numpy as np

from keras_bert.data.examples import Examples, unknown_label
from keras_bert.data.table_rows import tsv_row
from keras_bert.data.tables import check_no_format
from keras_bert.runtime.escaping import shown
from keras_bert.tasks import head_start
from keras_bert.tasks.activations import softmax
from keras_bert.tasks.tagging import data as conll
from keras_bert.tasks.tagging import windows as tag_windows
from keras_bert.tasks.tagging.data import TaggedSentences
from keras_bert.tasks.tagging.pipeline import TaggingPipeline, results_of, separator_of
from keras_bert.tasks.tagging.tag_schemes import entities, find_scheme
from keras_bert.tasks.task import HeadStart, Options, Task
from keras_bert.text import token_ids
from keras_bert.text.words import split_words

_PROGRAM = """\
with open("config.json", encoding="utf-8") as file:
    labels = json.load(file)["id2label"]
answers = []
for text, encoding, logits in zip(texts, encodings, outputs["logits"]):
    tags = [labels[str(index)] for index in logits.argmax(axis=-1)]
    tagged = []
    previous = None
    for word, (start, _), tag in zip(encoding.word_ids, encoding.offsets, tags):
        if word not in (None, previous):  # the first token of a word has the word's tag
            _, end = encoding.offsets[encoding.word_to_tokens(word)[1] - 1]
            tagged.append((text[start:end], tag))
        previous = word
    answers.append(tagged)"""
_CHARACTER_SHARE = 0.99  # see `are_characters`


# `C` of scikit-learn's logistic regression on words. With 1, its default, the head fits a small
# training set so closely that the encoder gets small gradients: entity F1 0.85 instead of 0.92 on
# the sentences of examples/data. With 0.001, 500 sentences of WNUT-17 give 0.38 instead of 0.42.
_C_OF_HEAD_START = 0.01


@dataclasses.dataclass(frozen=True)
class TaggingOptions(Options):
    """Options of training.

    stride: Tokens between the starts of two windows; `None` for the default of `tag_windows`.
    """

    stride: int | None = None


class Tagging(Task):
    """Tagging: one label for each word of a sentence, as in named entity recognition."""

    name = "tagging"
    data = (TaggedSentences,)
    reads: typing.ClassVar = {"tagging": ("word", "tag", "format", "limit")}
    comparable_data = (TaggedSentences, Examples)
    training_options = TaggingOptions
    pipeline = TaggingPipeline
    has_labels = True
    reads_windows = True
    uses_pooler = False
    packs = True
    positions_have_targets = True
    weights_group = "classifier"
    head_fields = ("labels", "characters", "dropout")
    variable_outputs = frozenset(("token", "tag", "score", "start", "end", "count"))
    graph_rank = 3
    hub_tag = "token-classification"
    head_start = HeadStart(
        max_sequences=500,
        max_tokens=30_000,
        needs_pooling=False,
        fit=functools.partial(head_start.fit_labels, c=_C_OF_HEAD_START),
    )

    def head_function(self):
        from keras_bert.tasks.tagging.head import tagger

        return tagger

    def read(self, name, data, options):
        if isinstance(data, (str, os.PathLike)):
            return conll.read(data, **options)
        check_no_format(options.pop("format"))
        return conll.read_table(data, **options)

    def read_in_parts(self, name, path, options):
        return conll.read_in_parts(path, word=options["word"], format=options["format"])

    def of_texts(self, model, texts, source):
        words, _ = split_words(texts, model.tokenizer, model.output.characters)
        return TaggedSentences(words, source=source)

    def describe(self, output):
        return "A BERT model that assigns a tag to each word."

    def columns_of(self, examples, output):
        if isinstance(examples, Examples):
            return [list(examples.texts)]
        separator = separator_of(output)
        return [[separator.join(words) for words in examples.words]]

    def is_labeled(self, examples):
        return examples.tags is not None

    def check_targets(self, output, examples):
        targets_of(examples, output.labels)

    def build(self, encoder, train):
        """Build a tagger for `TaggedSentences` with tags.

        If the words are single characters, the model splits texts into characters.
        """
        labels = train.label_names()
        if len(labels) < 2:
            received = f"only {shown(labels[0])}" if labels else "none"
            raise ValueError(f"{train.source}: needs at least two tags; received {received}")
        return self.head_function()(encoder, labels=labels, characters=are_characters(train.words))

    def encode(self, model, examples, max_length, options):
        """Encode sentences as `EncodedSentences`."""
        words = token_ids.tokenize(model.tokenizer, itertools.chain.from_iterable(examples.words))
        targets = None
        if examples.tags is not None:
            targets = targets_of(examples, model.output.labels)
        return tag_windows.EncodedSentences(
            words.ids,
            words.lengths,
            examples.words,
            model.tokenizer.special_ids,
            max_length,
            stride=options.stride,
            targets=targets,
        )

    def decode(self, model, examples, encoded, outputs, options):
        """Return a list of (tag, probability) per sentence, see `tag_windows.decode`.

        `outputs` has the probabilities of each window, (seq, labels).
        """
        return tag_windows.decode(model.output.labels, examples.words, encoded, outputs)

    def score(self, output, examples, answers):
        """Score answers: `f1`, `precision`, `recall` of entities, `accuracy`, `majority`.

        Entities are scored for the schemes of `tag_schemes`, as CoNLL's script does.
        If `output` is `None`, the tags of the examples decide if entities are scored.
        Source: https://www.clips.uantwerpen.be/conll2003/ner/bin/conlleval and seqeval.
        """
        scheme = _scheme(output, examples)
        metrics = {}
        if scheme is not None:
            counts = _counts(examples, answers, scheme)
            rates = _rates(*(counter.total() for counter in counts))
            metrics = {name: rates[name] for name in ("f1", "precision", "recall")}
        expected, predicted = self.confusion(output, examples, answers)
        if not expected:
            raise ValueError(
                f"{examples.source}: no word has a known tag and a token, so there is nothing to "
                "score"
            )
        accuracy = np.mean(np.array(expected) == np.array(predicted))
        majority = max(collections.Counter(expected).values()) / len(expected)
        return {**metrics, "accuracy": float(accuracy), "majority": majority}

    def report(self, output, examples, answers):
        """Return `precision`, `recall`, `f1` and `support` per entity type, or else per tag."""
        counts = _counts(examples, answers, _scheme(output, examples))
        _, predicted, expected = counts
        return {
            name: _rates(*(counter[name] for counter in counts)) | {"support": expected[name]}
            for name in sorted({*predicted, *expected})
        }

    def metric_names(self, output, examples):
        """Return the names of the metrics of `score`, the main one first, without `majority`."""
        if _scheme(output, examples) is None:
            return ("accuracy",)
        return ("f1", "precision", "recall", "accuracy")

    def results(self, output, examples, answers, *, grouped=True, **options):
        return results_of(output, examples, answers, grouped)

    def rows(self, output, examples, answers, probabilities=False):
        """Yield a dict per sentence with the lists `words`, `tags` and `scores`."""
        for words in self.results(output, examples, answers, grouped=False):
            yield {
                "words": [word["text"] for word in words],
                "tags": [word["tag"] for word in words],
                "scores": [word["score"] for word in words],
            }

    def activate(self, output, outputs):
        return [softmax(logits) for logits in outputs]

    def confusion(self, output, examples, answers):
        rows = zip(examples.tags, answers, strict=True)
        pairs = [pair for tags, answer in rows for pair in _known_pairs(tags, answer)]
        return [expected for expected, _ in pairs], [predicted for _, predicted in pairs]

    def own_lines(self, format, rows):
        return _conll_lines(rows) if format == "tsv" else None

    def table_rows(self, rows, examples):
        """Yield a dict for each word of each sentence; sentences have the numbers of the file."""
        for number, record in enumerate(rows, examples.first):
            columns = (record["words"], record["tags"], record["scores"])
            for word, tag, score in zip(*columns, strict=True):
                yield {"sentence": number, "word": word, "tag": tag, "score": score}

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.tagging import serving

        return serving.tagger(predict, output, preprocessor, max_sequence_length)

    def length_of_rows(self, outputs):
        return int(outputs["count"].max(initial=0))

    def add_onnx_head(self, graph, model, encoded):
        x = graph.dense_layer(encoded.sequence, model.get_layer("logits"))
        graph.node("Identity", x, output="logits")
        return {"logits": ("batch_size", "sequence_length", len(encoded.output.labels))}

    def graph_program(self, output):
        return _PROGRAM

    def target(self, explained, target):
        """Explain the tag of a word: its index, or a tuple of the index and a tag."""
        labels = explained.output.labels
        is_tuple = isinstance(target, tuple) and len(target) == 2
        index, tag = target if is_tuple else (target, None)
        position = explained.word(index).positions[0]
        if tag is None:
            tag = int(explained.outputs()[position].argmax())
        tag = explained.index_of_label(tag)
        return labels[tag], lambda logits: logits[:, position, tag], position


def are_characters(sentences):
    """Return True if more than 99% of the words are single characters, as in KLUE's NER data."""
    sizes = np.array([len(word) for sentence in sentences for word in sentence])
    return bool((sizes == 1).sum() > _CHARACTER_SHARE * len(sizes))


def targets_of(examples, labels):
    """Return the index of each word's tag in the labels, int32 (words,).

    A tag that the labels lack is an `UnknownLabel`, which is a `ValueError`. The index of a word
    without a tag is -1.
    """
    index_of = {label: index for index, label in enumerate(labels)}
    targets = []
    for number, row in enumerate(examples.tags, examples.first):
        for tag in row:
            if tag is None:
                targets.append(-1)
            elif str(tag) in index_of:
                targets.append(index_of[str(tag)])
            else:
                location = f"{examples.source}, sentence {number}"
                raise unknown_label(location, str(tag), labels, what="tag")
    return np.array(targets, np.int32)


def _counts(examples, answers, scheme):
    """Return the numbers of correct, predicted and expected entities, three Counters by type.

    Without a scheme, count words by tag.
    """
    correct: collections.Counter[str] = collections.Counter()
    predicted: collections.Counter[str] = collections.Counter()
    expected: collections.Counter[str] = collections.Counter()
    for tags, answer in zip(examples.tags, answers, strict=True):
        pairs = _known_pairs(tags, answer)
        expected_units = _scored_units([tag for tag, _ in pairs], scheme)
        predicted_units = _scored_units([answered for _, answered in pairs], scheme)
        correct.update(name for name, *_ in expected_units & predicted_units)
        predicted.update(name for name, *_ in predicted_units)
        expected.update(name for name, *_ in expected_units)
    return correct, predicted, expected


def _known_pairs(tags, answer):
    """Return the right and the answered tag of each scored word of a sentence.

    A word without tokens, which has the score 0, is not scored: no model can tag it. It does not
    split an entity. A word whose tag is not known is not scored either.
    """
    return [
        (str(tag), answered)
        for tag, (answered, score) in zip(tags, answer, strict=True)
        if tag is not None and score > 0
    ]


def _rates(correct, predicted, expected):
    return {
        "precision": correct / max(predicted, 1),
        "recall": correct / max(expected, 1),
        "f1": 2 * correct / max(predicted + expected, 1),
    }


def _scored_units(tags, scheme):
    """Return what a report counts in a sentence: the entities, or (tag, index) of each word."""
    if scheme is None:
        return set(zip(map(str, tags), itertools.count()))
    return entities(tags, scheme)


def _scheme(output, examples):
    """Return the `TagScheme` of the tags; `None` if they mark no entities."""
    # Use the labels of the model, so that all epochs have the same metrics, even if the file and
    # the answers of an epoch hold no entity.
    labels = examples.label_names() if output is None else output.labels
    return find_scheme(map(str, labels))


def _conll_lines(records):
    """Yield lines in CoNLL columns: word, score, tag; an empty line after each sentence."""
    for record in records:
        columns = (record["words"], record["scores"], record["tags"])
        for word, score, tag in zip(*columns, strict=True):
            yield tsv_row((word, f"{score:.4f}", tag))
        yield ""
