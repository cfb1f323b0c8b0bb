"""One text or pair of texts as the input of a model, with its tokens and words."""

import dataclasses
import itertools
import warnings

import numpy as np

from keras_bert import heads
from keras_bert.model_structure import find_encoder, max_sequence_length, preprocessor_of
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.tasks.inputs import check_texts
from keras_bert.tasks.masked_tokens.masks import MASK
from keras_bert.text import token_ids
from keras_bert.text.python_tokenizer import Tokens

_NO_WORD = -1


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedText:
    """One text or pair, without padding.

    Attributes:
        inputs: Dict of int32 arrays (1, seq), the encoder's inputs.
        tokens: List of the tokens, with [CLS] and [SEP].
        texts: The text, or both texts of a pair.
        words: List of `Word`, without [MASK].
        pad_id: The id of [PAD].
    """

    inputs: dict
    tokens: list
    texts: tuple
    words: list
    pad_id: int


@dataclasses.dataclass(frozen=True)
class Word:
    """A word: its text (0 or 1), its first character and its end there, its token positions."""

    text: int
    start: int
    end: int
    positions: range


def encode_text(model, text, text_pair=None):
    """Encode a text or a pair for a model.

    Args:
        model: A `keras.Model` with one `BertEncoder` that has a preprocessor.
        text: A string.
        text_pair: The second text of a pair, or `None`.

    Returns:
        An `EncodedText`.

    Raises:
        ValueError: If an argument has another type, the encoder has no preprocessor, or the model
            reads pairs and `text_pair` is missing, or the reverse.

    Warns:
        UserWarning: If the text is longer than the model's maximum. It is truncated.
    """
    texts = (text,) if text_pair is None else (text, text_pair)
    check_texts(texts)
    _check_count(model, texts)
    preprocessor = preprocessor_of(model)
    tokenizer = preprocessor.python_tokenizer
    output = heads.find_output(model)
    tokenize = tokenizer.tokenize_with_offsets
    if output is not None and output.characters:
        tokenize = tokenizer.tokenize_characters_with_offsets
    reads_masks = "masked_lm_positions" in model.input
    has_masks = reads_masks and MASK in preprocessor.vocabulary
    mask_id = tokenizer.token_id(MASK) if has_masks else None
    tokenized = [_tokenize(tokenize, part, mask_id) for part in texts]
    ids = [np.array(tokens.ids, np.int32) for tokens in tokenized]
    total = sum(map(len, ids)) + 1 + len(ids)
    length = min(total, max_sequence_length(find_encoder(model)))
    inputs = token_ids.pack([ids], length, tokenizer.special_ids)
    if reads_masks:
        _, positions = np.nonzero(inputs["input_word_ids"] == mask_id)
        inputs["masked_lm_positions"] = positions[None].astype(np.int32)
    tokens = [preprocessor.vocabulary[index] for index in inputs["input_word_ids"][0]]
    if total > length:
        warnings.warn(
            f"the text was truncated from {total} to {length} tokens, the maximum of the model. "
            "Shorten it, or look at its parts one by one",
            stacklevel=level_of_caller(),
        )
    words = _words(tokenized, inputs["input_type_ids"][0])
    return EncodedText(inputs, tokens, texts, words, tokenizer.special_ids.pad)


def _check_count(model, texts):
    """Raise an error if a model reads pairs and gets one text, or the reverse."""
    task = registry.find(model)
    if task is None or task.reads_any_texts:
        return
    names = task.inputs_of(heads.find_output(model))
    if len(names) != len(texts):
        raise ValueError(
            f"{model.name!r} reads {' and '.join(names)}; received {len(texts)} texts. "
            f"{'Give' if len(names) > 1 else 'Remove'} text_pair"
        )


def _tokenize(tokenize, text, mask_id):
    """Return the `Tokens` of a text.

    With `mask_id`, each [MASK] is a token, and the index of its word is `_NO_WORD`.
    """
    tokens = Tokens([], [], [], [])
    first = 0
    for part in [text] if mask_id is None else text.split(MASK):
        if first:
            tokens.add([mask_id], _NO_WORD, [first - len(MASK)], [first])
        part_tokens = tokenize(part)
        words_before = max(tokens.words, default=-1) + 1
        tokens.ids.extend(part_tokens.ids)
        tokens.words.extend([words_before + word for word in part_tokens.words])
        tokens.starts.extend([first + start for start in part_tokens.starts])
        tokens.limits.extend([first + limit for limit in part_tokens.limits])
        first += len(part) + len(MASK)
    return tokens


def _words(tokenized, type_ids):
    """Return the words of the texts, which may be truncated."""
    counts = [len(type_ids) - 2]  # tokens of each text
    if len(tokenized) == 2:
        second = int(type_ids.sum()) - 1  # the last [SEP] has type 1 too
        counts = [len(type_ids) - 3 - second, second]
    words = []
    first = 1  # position of the first token of the text
    for text, (tokens, count) in enumerate(zip(tokenized, counts, strict=True)):
        for word, group in itertools.groupby(range(count), key=tokens.words.__getitem__):
            if word == _NO_WORD:
                continue
            indices = list(group)
            positions = range(first + indices[0], first + indices[-1] + 1)
            start, end = tokens.starts[indices[0]], tokens.limits[indices[-1]]
            words.append(Word(text, start, end, positions))
        first += count + 1
    return words
