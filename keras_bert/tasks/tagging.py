"""Tagging: one label for each word of a sentence, as in named entity recognition.

A word is labeled at its first token. Its other tokens, [CLS], [SEP] and padding have weight 0
(section 5.3 of the BERT paper). Long sentences are cut into overlapping windows. The label of a
word comes from the window in which the word has the most context.
"""

import itertools

import keras
import numpy as np
import scipy.special
import tensorflow as tf

from keras_bert import heads
from keras_bert.data.conll import OUTSIDE, is_bio
from keras_bert.data.examples import check_strings
from keras_bert.text.fast_tokenizer import tokenize_function

HEADS = ("tagger",)
MAX_LENGTH = 128

_WORDS_PER_CALL = 65_536  # words per call of the tokenizer
_TEXTS_PER_CALL = 4_096
_CHARACTER_SHARE = 0.99  # share of words of one character from which all count as characters


def build(encoder, train):
    """Build a tagger for the tags of training sentences.

    If the words are single characters, the model splits texts into characters.

    Args:
        encoder: A `BertEncoder`.
        train: `TaggedSentences` with tags.

    Returns:
        A model of `heads.tagger`.

    Raises:
        ValueError: If there are fewer than two tags.

    Example:

    >>> import keras_bert
    >>> from keras_bert.data.conll import TaggedSentences
    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                                  num_attention_heads=2, intermediate_size=8)
    >>> build(encoder, TaggedSentences([["Ann", "left"]], [["B-PER", "O"]])).output_shape
    (None, None, 3)
    """
    labels = train.label_names()
    if len(labels) < 2:
        received = f"only {labels[0]!r}" if labels else "none"
        raise ValueError(
            f"{train.source}: needs at least two tags to tell apart; received {received}"
        )
    return heads.tagger(encoder, labels=labels, characters=are_characters(train.words))


def are_characters(sentences):
    """Return True if the words are single characters, as in KLUE's named entity data.

    A file may hold a few longer words: 99% must be single characters.

    Args:
        sentences: The words of each sentence.

    Returns:
        A bool.

    Example:

    >>> are_characters([["서", "울"], [" ", "!"]]), are_characters([["서울", "!"]])
    (True, False)
    """
    sizes = np.array([len(word) for sentence in sentences for word in sentence])
    return bool((sizes == 1).sum() > _CHARACTER_SHARE * len(sizes))


def compile_options(model):
    """Return the loss and the metrics of a tagger.

    The loss is a sum: the weights of `EncodedSentences.batch` already divide it.

    Args:
        model: From `build`.

    Returns:
        A dict of arguments of `keras.Model.compile`, for weights (batch, seq).

    Example:

    >>> sorted(compile_options(None))
    ['loss', 'weighted_metrics']
    """
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
    }


class EncodedSentences:
    """Tokenized sentences in windows that fit the model, from `encode`.

    A sentence without tokens has no window.

    Args:
        ids: The tokens of all sentences, int32 (tokens,).
        targets: For each token the label of its word, int32 (tokens,); `None` without tags.
        counts: Number of tokens of each word, int (words,).
        windows: int (windows, 4): the range of tokens of each window, then the range of tokens
            whose words get their label from this window. Ends are exclusive.
        special_ids: The ids of [CLS], [SEP] and [PAD].
        max_length: Maximum length of a window.
        cut_words: See below.

    Attributes:
        lengths: Length of each window with its special tokens, int (windows,).
        max_length: As given.
        pad_id: The id of [PAD].
        has_tokens: If each word has tokens, bool (words,).
        words_without_tokens: Number of words without tokens, such as white space. They are not
            used in training.
        cut_words: Number of words that are longer than a window and were truncated.
    """

    def __init__(self, ids, targets, counts, windows, special_ids, max_length, cut_words=0):
        self._ids, self._targets, self._windows = ids, targets, windows
        self._special_ids = special_ids
        self.pad_id = special_ids[-1]
        self._is_first = np.zeros(len(ids), bool)
        self._is_first[(np.cumsum(counts) - counts)[counts > 0]] = True
        self.lengths = windows[:, 1] - windows[:, 0] + 2
        self.max_length = max_length
        learned = np.concatenate([[0], np.cumsum(self._is_first)])
        in_windows = learned[windows[:, 3]] - learned[windows[:, 2]]
        self._words_in_window = in_windows.sum() / max(len(windows), 1)
        self.has_tokens = counts > 0
        self.words_without_tokens = int((counts == 0).sum())
        self.cut_words = cut_words

    def __len__(self):
        return len(self._windows)

    def batch(self, rows, length):
        """Return the inputs, targets and weights of one batch.

        Args:
            rows: Indices of the windows, int (batch,).
            length: Length to pad to, at least that of the longest window.

        Returns:
            A dict of three int32 arrays (batch, length), targets int32 (batch, length) and weights
            float32 (batch, length). The weight is the same for every word, and 0 for other
            positions. It sums to 1 in an average batch. Targets and weights are `None` without
            tags.

        Raises:
            ValueError: If a window is longer than `length`.
        """
        rows = np.asarray(rows, np.int64)
        lengths = self.lengths[rows][:, None]
        if (lengths > length).any():
            raise ValueError(
                f"length must be at least {lengths.max()}, the longest window; received {length}"
            )
        start, limit, first, last = self._windows[rows].T[:, :, None]  # each (batch, 1)
        position = np.arange(length)
        token = start + position - 1  # the window follows [CLS]
        inside = (token >= start) & (token < limit)  # (batch, length)
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
        learned = inside & self._is_first[token] & (token >= first) & (token < last)
        targets = np.where(learned, self._targets[token], np.int32(0))
        # Divided by the average number of words per batch, not by the number in this batch. In
        # batches of similar lengths, a word of a short sentence would otherwise count more.
        weight = 1 / (self._words_in_window * len(rows))
        return inputs, targets, np.where(learned, np.float32(weight), np.float32(0))

    def positions(self, row):
        """Return the positions of the words that get their label from a window, int (words,)."""
        start, _, first, last = self._windows[row]
        return np.flatnonzero(self._is_first[first:last]) + first - start + 1


def encode(model, examples, max_length, *, stride=None):
    """Encode sentences, with the targets of the model's labels.

    Sentences that do not fit are cut between words into overlapping windows. Words that are longer
    than a window are truncated.

    Args:
        model: From `heads.tagger`; its encoder has a preprocessor.
        examples: `TaggedSentences`.
        max_length: Maximum length of a window, with [CLS] and [SEP].
        stride: Number of tokens from the start of a window to the start of the next one, as far
            as word boundaries allow; by default three quarters of the tokens of a window.

    Returns:
        The `EncodedSentences`.

    Raises:
        ValueError: If a tag is not one of the model's labels, `max_length` is below 3, or the
            stride is not from 1 to `max_length - 2`.

    Example:

    >>> import keras_bert
    >>> from keras_bert.data.conll import TaggedSentences
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Ann", "left", "##e"]
    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=7, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, preprocessor=keras_bert.Preprocessor(tokens, lowercase=False))
    >>> sentences = TaggedSentences([["Anne", "left"]], [["B-PER", "O"]])
    >>> encoded = encode(build(encoder, sentences), sentences, max_length=16)
    >>> inputs, targets, weights = encoded.batch([0], length=6)
    >>> inputs["input_word_ids"].tolist(), targets.tolist(), weights.tolist()
    ([[2, 4, 6, 5, 3, 0]], [[0, 1, 0, 0, 0, 0]], [[0.0, 0.5, 0.0, 0.5, 0.0, 0.0]])
    """
    if max_length < 3:
        raise ValueError(f"max_length must be at least 3; received {max_length}")
    capacity = max_length - 2
    stride = capacity - capacity // 4 if stride is None else stride
    if not 1 <= stride <= capacity:
        raise ValueError(f"stride must be from 1 to max_length - 2, {capacity}; received {stride}")
    tokenizer = heads.find_encoder(model).preprocessor.tokenizer
    ids, counts = _tokenize(tokenizer, examples.words)
    of_word = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
    cut_words = int((counts > capacity).sum())
    ids, counts = ids[of_word < capacity], np.minimum(counts, capacity)
    targets = None
    if examples.tags is not None:
        targets = np.repeat(_targets(examples, heads.find_output(model).labels), counts)
    edges = np.concatenate([[0], np.cumsum(counts)])  # number of tokens before each word
    windows, end = [], 0
    for sentence in examples.words:
        begin, end = end, end + len(sentence)
        windows += _windows(edges[begin : end + 1], capacity, stride)
    return EncodedSentences(
        ids,
        targets,
        counts,
        np.array(windows, np.int64).reshape(-1, 4),
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
    """Cut one sentence between words; return the rows of `EncodedSentences`' windows.

    `edges` has the first token of each word and the end of the sentence, int (words + 1,).
    `capacity` is the number of tokens that fit into a window; no word has more.
    """
    begin, end = int(edges[0]), int(edges[-1])
    if begin == end:
        return []
    if end - begin <= capacity:
        return [(begin, end, begin, end)]
    rows: list[tuple[int, int, int, int]] = []
    owned = begin  # the first token that gets its label from the current window
    while True:
        limit = int(edges[np.searchsorted(edges, begin + capacity, side="right") - 1])
        if limit == end:
            return [*rows, (begin, limit, owned, end)]
        # The next window starts one stride later, or later if its first new word does not fit
        # otherwise.
        needed = edges[np.searchsorted(edges, limit, side="right")] - capacity
        following = max(
            int(edges[np.searchsorted(edges, begin + stride, side="right") - 1]),
            int(edges[np.searchsorted(edges, needed)]),
        )
        # A word belongs to the window in which it has more context. In the overlap, that is the
        # left window for words whose middle is left of the middle of the overlap.
        middles = edges[:-1] + edges[1:]
        border = int(edges[np.searchsorted(middles, limit + following, side="right")])
        rows.append((begin, limit, owned, border))
        begin, owned = following, border


def decode(model, examples, encoded, outputs):
    """Convert the outputs of a tagger to the tags of words.

    A word without tokens gets the tag "I-x" between two words of one entity of type x. Otherwise
    it gets "O", or the first label if the model has no "O". Its score is 0.

    Args:
        model: From `heads.tagger`.
        examples: The `TaggedSentences`.
        encoded: The `EncodedSentences` of the examples.
        outputs: For each window its logits, a list of float arrays (positions, labels), which may
            be padded.

    Returns:
        For each sentence a list with a pair of tag and probability per word.

    Example:

    >>> import keras_bert
    >>> from keras_bert.data.conll import TaggedSentences
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Ann", "left"]
    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=6, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, preprocessor=keras_bert.Preprocessor(tokens, lowercase=False))
    >>> model = heads.tagger(encoder, labels=["O", "B-PER"])
    >>> sentences = TaggedSentences([["Ann", "left"]])
    >>> encoded = encode(model, sentences, max_length=16)
    >>> decode(model, sentences, encoded, [np.array([[0, 0], [0, 99], [99, 0], [0, 0]])])
    [[('B-PER', 1.0), ('O', 1.0)]]
    """
    labels = heads.find_output(model).labels
    default = OUTSIDE if OUTSIDE in labels else labels[0]
    logits = [
        np.asarray(output, np.float32)[encoded.positions(row)] for row, output in enumerate(outputs)
    ]
    # In the order of all words that have tokens, because windows are in the order of the text.
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
    """Replace `None` by tags, so that a space between words does not end their entity."""
    following = default
    for index in reversed(range(len(tags))):
        if tags[index] is None and following.startswith("I-"):
            before = next((tag for tag in reversed(tags[:index]) if tag is not None), default)
            same_entity = before in (following, "B-" + following[2:])
            tags[index] = following if same_entity else default
        following = tags[index] = tags[index] or default
    return tags


def score(model, examples, answers):
    """Score answers against the tags of the examples.

    With BIO tags (labels that start with "B-" or "I-"), entities are scored. An entity is correct
    if its type, its first word and its last word are. As in CoNLL's script, an "I-" after "O" or
    after another type starts an entity. "S-" and "E-", or "U-" and "L-", are supported.

    Source: https://www.clips.uantwerpen.be/conll2003/ner/bin/conlleval; seqeval's default mode
    gives the same results.

    Args:
        model: The tagger that gave the answers. For answers of another program `None`: then the
            tags of the examples decide if entities are scored.
        examples: `TaggedSentences` with tags.
        answers: From `decode`.

    Returns:
        A dict of floats, 0 to 1, the main metric first: for BIO tags `f1`, `precision` and
        `recall` of entities; `accuracy`, the share of correct tags; `majority`, the accuracy of
        always guessing the most frequent tag.

    Raises:
        ValueError: If the examples have no tags.

    Example:

    >>> import keras_bert
    >>> from keras_bert.data.conll import TaggedSentences
    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                                  num_attention_heads=2, intermediate_size=8)
    >>> sentences = TaggedSentences([["Ann", "Lee", "left"]], [["B-PER", "I-PER", "O"]])
    >>> model = build(encoder, sentences)
    >>> score(model, sentences, [[("B-PER", 0.9), ("O", 0.8), ("O", 0.9)]])["f1"]
    0.0
    """
    if examples.tags is None:
        raise ValueError(f"{examples.source}: has no tags to score against")
    given = [[tag for tag, _ in answer] for answer in answers]
    pairs = list(zip(examples.tags, given, strict=True))
    metrics = {}
    if _has_entities(model, examples):
        entities = [(_entities(gold), _entities(row)) for gold, row in pairs]
        correct = sum(len(gold & found) for gold, found in entities)
        found = sum(len(found) for _, found in entities)
        expected = sum(len(gold) for gold, _ in entities)
        metrics = {
            "f1": 2 * correct / max(found + expected, 1),
            "precision": correct / max(found, 1),
            "recall": correct / max(expected, 1),
        }
    same = [a == b for gold, row in pairs for a, b in zip(gold, row, strict=True)]
    return {**metrics, "accuracy": float(np.mean(same)), "majority": examples.majority_share()}


def metric_names(model, examples):
    """Return the names of the metrics of `score`, the main one first, without `majority`.

    Args:
        model: A tagger.
        examples: `TaggedSentences`; used if `model` is `None`.

    Returns:
        A tuple of strings.
    """
    return (*(("f1", "precision", "recall") if _has_entities(model, examples) else ()), "accuracy")


def _has_entities(model, examples):
    # Decided by the labels of the model, so that all epochs have the same metrics, even if neither
    # the file nor the answers of an epoch hold an entity.
    labels = examples.label_names() if model is None else heads.find_output(model).labels
    return any(map(is_bio, labels))


# In BILOU, "L" marks the last word of an entity and "U" an entity of one word.
_BILOU = {"L": "E", "U": "S"}


def _entities(tags):
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


def header(model):
    """Return `None`: a file in CoNLL columns has no header."""


def lines(model, examples, answers):
    r"""Yield the lines of a file of answers, in CoNLL columns.

    Args:
        model: Not used.
        examples: `TaggedSentences`, with or without tags.
        answers: From `decode`.

    Yields:
        Strings without a line end: word, tag and score, separated by tabs, and an empty line after
        each sentence.

    Example:

    >>> from keras_bert.data.conll import TaggedSentences
    >>> list(lines(None, TaggedSentences([["Ann", "left"]]), [[("B-PER", 0.9), ("O", 1.0)]]))
    ['Ann\tB-PER\t0.9000', 'left\tO\t1.0000', '']
    """
    for words, answer in zip(examples.words, answers, strict=True):
        for word, (tag, value) in zip(words, answer, strict=True):
            yield f"{word}\t{tag}\t{value:.4f}"
        yield ""


def records(model, examples, answers):
    """Yield the answers as dicts.

    Args:
        model, examples, answers: As in `lines`.

    Yields:
        A dict per word: `sentence`, a number from 1, `word`, `tag`, `score`.

    Example:

    >>> from keras_bert.data.conll import TaggedSentences
    >>> list(records(None, TaggedSentences([["Ann"]]), [[("B-PER", 0.9)]]))
    [{'sentence': 1, 'word': 'Ann', 'tag': 'B-PER', 'score': 0.9}]
    """
    rows = zip(examples.words, answers, strict=True)
    for number, (words, answer) in enumerate(rows, examples.first):
        for word, (tag, value) in zip(words, answer, strict=True):
            yield {"sentence": number, "word": word, "tag": tag, "score": float(value)}


def split_words(texts, tokenizer, characters=False):
    """Split texts into words as the tokenizer does, at white space and punctuation.

    Args:
        texts: List of strings.
        tokenizer: A `WordPieceTokenizer`.
        characters: If True, split into characters instead.

    Returns:
        `(words, spans)`: for each text the list of its words, and the list of their spans, pairs
        of the first byte and the end in the UTF-8 of the text. A text may have no words, because
        the tokenizer drops some characters.

    Raises:
        ValueError: If `texts` is not a list of strings.

    Example:

    >>> from keras_bert.text.tokenizer import WordPieceTokenizer
    >>> split_words(["Zoë left!"], WordPieceTokenizer(["[UNK]", "zoe"]))
    ([['Zoë', 'left', '!']], [[(0, 4), (5, 9), (9, 10)]])
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
