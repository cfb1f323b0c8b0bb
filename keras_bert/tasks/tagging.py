"""Tagging: one label for each word of a sentence, as in named entity recognition.

A word is labeled at its first token; other positions have weight 0 (section 5.3 of the BERT paper).
Long sentences are cut into overlapping windows. The label of a word comes from the window in which
the word has the most context.
"""

import collections
import itertools
from typing import NamedTuple

import keras
import numpy as np
import scipy.special
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.conll import OUTSIDE, is_bio
from keras_bert.data.examples import check_strings
from keras_bert.data.packed_layout import within
from keras_bert.text.fast_tokenizer import tokenize_function

HEADS = ("tagger",)
MAX_LENGTH = 128

_WORDS_PER_CALL = 65_536  # words per call of the tokenizer
_TEXTS_PER_CALL = 4_096
_CHARACTER_SHARE = 0.99  # see `are_characters`


def build(encoder, train):
    """Build a tagger for `TaggedSentences` with tags.

    If the words are single characters, the model splits texts into characters.
    """
    labels = train.label_names()
    if len(labels) < 2:
        received = f"only {labels[0]!r}" if labels else "none"
        raise ValueError(f"{train.source}: needs at least two tags; received {received}")
    return heads.tagger(encoder, labels=labels, characters=are_characters(train.words))


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


class Windows(NamedTuple):
    """Ranges of tokens, one per window. Ends are exclusive.

    `start`, `end`: the tokens in the window. `label_start`, `label_end`: the tokens whose words get
    their label from this window. A field is an int, or int (windows,) for several windows.
    """

    start: np.ndarray | int
    end: np.ndarray | int
    label_start: np.ndarray | int
    label_end: np.ndarray | int


class EncodedSentences:
    """Tokenized sentences in windows that fit the model. A sentence without tokens has no window.

    Args:
        ids: Tokens of all sentences, int32 (tokens,).
        targets: Label of each token's word, int32 (tokens,); `None` without tags.
        counts: Number of tokens of each word, int (words,).
        windows: `Windows` of arrays.
        special_ids: Ids of [CLS], [SEP] and [PAD].
        cut_words: Number of words that are longer than a window and were truncated.

    Attributes:
        lengths: Length of each window with its special tokens, int (windows,).
        has_tokens: If each word has tokens, bool (words,).
        words_without_tokens: Number of words without tokens, such as white space. They are not
            used in training.
    """

    def __init__(self, ids, targets, counts, windows, special_ids, max_length, cut_words=0):
        self._ids, self._targets, self._windows = ids, targets, windows
        self._special_ids = special_ids
        self.pad_id = special_ids[-1]
        self._is_first = np.zeros(len(ids), bool)
        self._is_first[(np.cumsum(counts) - counts)[counts > 0]] = True
        self.lengths = windows.end - windows.start + 2
        self.max_length = max_length
        words_before = np.concatenate([[0], np.cumsum(self._is_first)])  # of each token
        labeled_words = words_before[windows.label_end] - words_before[windows.label_start]
        self._words_per_window = labeled_words.sum() / max(len(self), 1)
        self.has_tokens = counts > 0
        self.words_without_tokens = int((counts == 0).sum())
        self.cut_words = cut_words

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """Return inputs, targets and weights of windows `rows`, padded to `length`.

        Inputs: a dict of three int32 arrays (batch, length). Targets: int32 (batch, length).
        Weights: float32 (batch, length), equal for all words, 0 elsewhere, with sum 1 in an average
        batch. Targets and weights are `None` without tags.
        """
        rows = np.asarray(rows, np.int64)
        lengths = self.lengths[rows][:, None]
        if (lengths > length).any():
            raise ValueError(
                f"length must be at least {lengths.max()}, the longest window; received {length}"
            )
        windows = Windows(*(column[rows][:, None] for column in self._windows))  # (batch, 1)
        position = np.arange(length)
        token = windows.start + position - 1  # the window follows [CLS]
        inside = (token >= windows.start) & (token < windows.end)  # (batch, length)
        token = np.where(inside, token, 0)
        cls_id, sep_id, pad_id = self._special_ids
        ids = np.where(inside, self._ids[token], np.int32(pad_id))
        ids[:, 0] = cls_id
        ids[position == lengths - 1] = sep_id
        inputs = {
            "input_word_ids": ids,
            "input_mask": (position < lengths).astype(np.int32),
            "input_type_ids": np.zeros_like(ids),
        }
        if self._targets is None:
            return inputs, None, None
        is_labeled = inside & self._is_first[token]
        is_labeled &= (token >= windows.label_start) & (token < windows.label_end)
        targets = np.where(is_labeled, self._targets[token], np.int32(0))
        # Divide by the average number of words per batch, not by the number in this batch. Batches
        # hold similar lengths, so a word of a short sentence would otherwise count more.
        weight = 1 / (self._words_per_window * len(rows))
        return inputs, targets, np.where(is_labeled, np.float32(weight), np.float32(0))

    def positions(self, row):
        """Return the positions of the words that get their label from a window, int (words,)."""
        window = Windows(*(column[row] for column in self._windows))
        words = np.flatnonzero(self._is_first[window.label_start : window.label_end])
        return words + window.label_start - window.start + 1


def encode(model, examples, max_length, *, stride=None):
    """Encode sentences as `EncodedSentences`, in windows of at most `max_length` tokens.

    Windows end between words. Longer words are truncated. `stride` is the number of tokens between
    the starts of two windows, by default three quarters of a window.
    """
    if max_length < 3:
        raise ValueError(f"max_length must be at least 3; received {max_length}")
    capacity = max_length - 2
    stride = capacity - capacity // 4 if stride is None else stride
    if not 1 <= stride <= capacity:
        raise ValueError(f"stride must be from 1 to max_length - 2, {capacity}; received {stride}")
    tokenizer = heads.find_encoder(model).preprocessor.tokenizer
    ids, counts = _tokenize(tokenizer, examples.words)
    cut_words = int((counts > capacity).sum())
    ids, counts = ids[within(counts) < capacity], np.minimum(counts, capacity)
    targets = None
    if examples.tags is not None:
        targets = np.repeat(_targets(examples, heads.find_output(model).labels), counts)
    edges = np.concatenate([[0], np.cumsum(counts)])  # number of tokens before each word
    windows: list[Windows] = []
    end = 0
    for sentence in examples.words:
        begin, end = end, end + len(sentence)
        windows += _windows(edges[begin : end + 1], capacity, stride)
    return EncodedSentences(
        ids,
        targets,
        counts,
        Windows(*np.array(windows, np.int64).reshape(-1, 4).T),
        [tokenizer.token_id(token) for token in ("[CLS]", "[SEP]", "[PAD]")],
        max_length,
        cut_words,
    )


def _tokenize(tokenizer, sentences):
    """Return the ids of all words, int32 (tokens,), and the number per word, int64 (words,)."""
    words = [word.encode("utf-8", "ignore") for sentence in sentences for word in sentence]
    tokenize = tokenize_function(tokenizer)
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(words), _WORDS_PER_CALL):
        chunk = tokenize(tf.constant(words[start : start + _WORDS_PER_CALL], tf.string))
        ids.append(chunk.flat_values.numpy())
        counts.append(chunk.row_lengths().numpy())
    return np.concatenate(ids), np.concatenate(counts)


def _targets(examples, labels):
    """Return the index of each word's tag in the labels, int32 (words,)."""
    index = {label: number for number, label in enumerate(labels)}
    for number, row in enumerate(examples.tags, examples.first):
        unknown = next((tag for tag in row if tag not in index), None)
        if unknown is not None:
            raise ValueError(
                f"{examples.source}, sentence {number}: the tag {unknown!r} is not one of the "
                f"model's labels: {', '.join(labels[:20])}"
            )
    return np.array([index[tag] for row in examples.tags for tag in row], np.int32)


def _windows(edges, capacity, stride):
    """Cut one sentence between words; return a list with the `Windows` of each window.

    `edges` has the first token of each word and the end of the sentence, int (words + 1,).
    `capacity` is the number of tokens that fit into a window; no word has more.
    """
    begin, end = int(edges[0]), int(edges[-1])
    if begin == end:
        return []
    if end - begin <= capacity:
        return [Windows(begin, end, begin, end)]
    windows: list[Windows] = []
    label_start = begin
    while True:
        limit = int(edges[np.searchsorted(edges, begin + capacity, side="right") - 1])
        if limit == end:
            return [*windows, Windows(begin, limit, label_start, end)]
        # The next window starts one stride later. If its first new word would not fit, it starts
        # even later.
        needed = edges[np.searchsorted(edges, limit, side="right")] - capacity
        following = max(
            int(edges[np.searchsorted(edges, begin + stride, side="right") - 1]),
            int(edges[np.searchsorted(edges, needed)]),
        )
        # A word belongs to the window in which it has more context. In the overlap, that is the
        # left window for words whose middle is left of the middle of the overlap.
        middles = edges[:-1] + edges[1:]
        border = int(edges[np.searchsorted(middles, limit + following, side="right")])
        windows.append(Windows(begin, limit, label_start, border))
        begin, label_start = following, border


def decode(model, examples, encoded, outputs):
    """Return a list of (tag, probability) per sentence, one pair per word.

    `outputs` has the logits of each window, (seq, labels). A word without tokens gets "I-x" between
    two words of one entity of type x, else "O" (or the first label if there is no "O"), with score
    0.
    """
    labels = heads.find_output(model).labels
    default = OUTSIDE if OUTSIDE in labels else labels[0]
    logits = [
        np.asarray(output, np.float32)[encoded.positions(row)] for row, output in enumerate(outputs)
    ]
    # Windows are in text order, so the rows are in the order of the words that have tokens.
    logits = np.concatenate([np.zeros((0, len(labels)), np.float32), *logits])
    probabilities = scipy.special.softmax(logits, axis=-1)
    scores = np.zeros(len(encoded.has_tokens))
    scores[encoded.has_tokens] = probabilities.max(axis=-1)
    found = iter(probabilities.argmax(axis=-1).tolist())
    tags = (labels[next(found)] if has else None for has in encoded.has_tokens)
    scored = iter(scores.tolist())
    answers = []
    for sentence in examples.words:
        row = _fill_gaps(list(itertools.islice(tags, len(sentence))), default)
        answers.append(list(zip(row, itertools.islice(scored, len(row)), strict=True)))
    return answers


def _fill_gaps(tags, default):
    """Replace each `None`, the tag of a word without tokens, by a tag as in `decode`."""
    following = default
    for index in reversed(range(len(tags))):
        if tags[index] is None and following.startswith("I-"):
            before = next((tag for tag in reversed(tags[:index]) if tag is not None), default)
            same_entity = before in (following, "B-" + following[2:])
            tags[index] = following if same_entity else default
        following = tags[index] = tags[index] or default
    return tags


def score(model, examples, answers):
    """Score answers: `f1`, `precision`, `recall` of entities for BIO tags, `accuracy`, `majority`.

    As in CoNLL's script, an "I-" after "O" or another type starts an entity. BIOES and BILOU work
    too. If `model` is `None`, the tags of the examples decide if entities are scored.
    Source: https://www.clips.uantwerpen.be/conll2003/ner/bin/conlleval and seqeval.
    """
    if examples.tags is None:
        raise ValueError(f"found no tags in {examples.source}; give sentences with tags")
    given = [[tag for tag, _ in answer] for answer in answers]
    pairs = list(zip(examples.tags, given, strict=True))
    metrics = {}
    if _has_entities(model, examples):
        sets = [(entities(gold), entities(row)) for gold, row in pairs]
        correct = sum(len(gold & found) for gold, found in sets)
        found = sum(len(found) for _, found in sets)
        expected = sum(len(gold) for gold, _ in sets)
        metrics = {
            "f1": 2 * correct / max(found + expected, 1),
            "precision": correct / max(found, 1),
            "recall": correct / max(expected, 1),
        }
    same = [a == b for gold, row in pairs for a, b in zip(gold, row, strict=True)]
    return {**metrics, "accuracy": float(np.mean(same)), "majority": examples.majority_share()}


def report(model, examples, answers):
    """Return `precision`, `recall`, `f1` and `support` per entity type, or else per tag."""
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    has_entities = _has_entities(model, examples)
    for gold, answer in zip(examples.tags, answers, strict=True):
        row = [tag for tag, _ in answer]
        sets = [
            entities(tags) if has_entities else {(tag, index) for index, tag in enumerate(tags)}
            for tags in (gold, row)
        ]
        for position, found in enumerate((sets[0] & sets[1], sets[1], sets[0])):
            for name, *_ in found:
                counts[name][position] += 1
    rows = {}
    for name, (correct, found, expected) in sorted(counts.items()):
        rows[name] = {
            "precision": correct / max(found, 1),
            "recall": correct / max(expected, 1),
            "f1": 2 * correct / max(found + expected, 1),
            "support": expected,
        }
    return rows


def metric_names(model, examples):
    """Return the names of the metrics of `score`, the main one first, without `majority`."""
    return (*(("f1", "precision", "recall") if _has_entities(model, examples) else ()), "accuracy")


def _has_entities(model, examples):
    # Use the labels of the model, so that all epochs have the same metrics, even if the file and
    # the answers of an epoch hold no entity.
    labels = examples.label_names() if model is None else heads.find_output(model).labels
    return any(map(is_bio, labels))


# In BILOU, "L" marks the last word of an entity and "U" an entity of one word.
_BILOU = {"L": "E", "U": "S"}


def entities(tags):
    """Return the entities of a sentence, a set of (type, first word, end)."""
    found = set()
    start, last_prefix, last_type = 0, OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, type = tag.partition("-")
        prefix = _BILOU.get(prefix, prefix)
        if prefix not in ("I", "E") or last_prefix not in ("B", "I") or type != last_type:
            if last_prefix != OUTSIDE:
                found.add((last_type, start, index))
            start = index
        last_prefix, last_type = prefix, type
    return found


def lines(model, examples, answers):
    """Yield lines in CoNLL columns: word, tag, score; an empty line after each sentence."""
    for words, answer in zip(examples.words, answers, strict=True):
        for word, (tag, value) in zip(words, answer, strict=True):
            yield f"{word}\t{tag}\t{value:.4f}"
        yield ""


def records(model, examples, answers):
    """Yield a dict per word: `sentence`, a number from 1, `word`, `tag`, `score`."""
    rows = zip(examples.words, answers, strict=True)
    for number, (words, answer) in enumerate(rows, examples.first):
        for word, (tag, value) in zip(words, answer, strict=True):
            yield {"sentence": number, "word": word, "tag": tag, "score": float(value)}


def split_words(texts, tokenizer, characters=False):
    """Split texts into words as the tokenizer does, or into characters: `(words, spans)`.

    Both have a list per text. A span is the first byte and the end of a word in UTF-8. A text may
    have no words, because the tokenizer drops some characters.
    """
    check_strings("split_words", "texts", texts)
    tokenize = tokenizer.tokenize_with_offsets
    if characters:
        tokenize = tokenizer.tokenize_characters_with_offsets
    raw = [text.encode("utf-8", "ignore") for text in texts]
    words: list[list[str]] = []
    spans: list[list[tuple[int, int]]] = []
    for start in range(0, len(raw), _TEXTS_PER_CALL):
        chunk = raw[start : start + _TEXTS_PER_CALL]
        _, index, starts, limits = tokenize(tf.constant(chunk, tf.string))
        splits = index.row_splits.numpy()
        values = index.flat_values.numpy()
        is_first = np.diff(values, prepend=-1) != 0  # the first token of each word
        is_first[splits[splits < len(values)]] = True  # the first word of each text has index 0
        first = np.flatnonzero(is_first)
        last = np.append(first[1:], len(values)) - 1 if len(first) else first
        starts = starts.flat_values.numpy()[first].tolist()
        limits = limits.flat_values.numpy()[last].tolist()
        pairs = list(zip(starts, limits, strict=True))
        for text, (begin, end) in zip(
            chunk, itertools.pairwise(np.searchsorted(first, splits)), strict=True
        ):
            spans.append(pairs[begin:end])
            words.append([text[a:b].decode("utf-8") for a, b in pairs[begin:end]])
    return words, spans
