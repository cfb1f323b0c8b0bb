"""One text or pair of texts as the input of a model, with its tokens and words."""

import dataclasses
import warnings

import numpy as np

from keras_bert import heads
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import inference, registry
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
    """

    inputs: dict
    tokens: list
    texts: tuple
    words: list


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
    _check(model, text, text_pair)
    texts = (text,) if text_pair is None else (text, text_pair)
    limit = inference.length_limit(model)
    preprocessor = heads.find_encoder(model).preprocessor
    tokenizer = preprocessor.python_tokenizer
    tokenize = tokenizer.tokenize_with_offsets
    output = heads.find_output(model)
    if output is not None and output.characters:
        tokenize = tokenizer.tokenize_characters_with_offsets
    reads_masks = "masked_lm_positions" in model.input
    mask_id = None
    if reads_masks and MASK in preprocessor.vocabulary:
        mask_id = tokenizer.token_id(MASK)
    tokenized = [_tokenize(tokenize, part, mask_id) for part in texts]
    total = sum(len(tokens.ids) for tokens in tokenized) + 1 + len(texts)
    ids = [np.array(tokens.ids, np.int32) for tokens in tokenized]
    inputs = token_ids.pack([ids], min(total, limit), tokenizer.special_ids)
    if reads_masks:
        _, positions = np.nonzero(inputs["input_word_ids"] == mask_id)
        inputs["masked_lm_positions"] = positions[None].astype(np.int32)
    tokens = [preprocessor.vocabulary[index] for index in inputs["input_word_ids"][0]]
    if total > len(tokens):
        warnings.warn(
            f"the text was truncated from {total} to {len(tokens)} tokens, the maximum of the "
            "model. Shorten it, or look at its parts one by one",
            stacklevel=level_of_caller(),
        )
    words = []
    for index, (position, count) in enumerate(_parts(inputs["input_type_ids"][0], len(texts))):
        words += _words(index, tokenized[index], position, count)
    return EncodedText(inputs, tokens, texts, words)


def _check(model, text, text_pair):
    for name, value in (("text", text), ("text_pair", text_pair)):
        if not isinstance(value, str) and (name == "text" or value is not None):
            raise ValueError(f"{name} must be one string; received {value!r:.80}")
    task = registry.find(model)
    if task is None or task.reads_any_texts:
        return
    names = task.inputs_of(heads.find_output(model))
    if len(names) > 1 and text_pair is None:
        raise ValueError(
            f"{model.name!r} reads pairs, {' and '.join(names)}; give the second as text_pair"
        )
    if len(names) == 1 and text_pair is not None:
        raise ValueError(f"{model.name!r} reads single texts; remove text_pair")


def _tokenize(tokenize, text, mask_id):
    """Return the `Tokens` of a text.

    With `mask_id`, each [MASK] is a token, and the index of its word is `_NO_WORD`.
    """
    parts = [text] if mask_id is None else text.split(MASK)
    tokens = Tokens([], [], [], [])
    first = 0
    for part in parts:
        if first:
            tokens.add([mask_id], _NO_WORD, [first - len(MASK)], [first])
        found = tokenize(part)
        words_before = max(tokens.words, default=-1) + 1
        tokens.ids.extend(found.ids)
        tokens.words.extend([words_before + word for word in found.words])
        tokens.starts.extend([first + start for start in found.starts])
        tokens.limits.extend([first + limit for limit in found.limits])
        first += len(part) + len(MASK)
    return tokens


def _parts(type_ids, count):
    """Return the position of the first token and the number of tokens of each text."""
    if count == 1:
        return [(1, len(type_ids) - 2)]
    second = int(np.argmax(type_ids))  # its last [SEP] has type 1 too, so there is a 1
    return [(1, second - 2), (second, len(type_ids) - second - 1)]


def _words(index, tokens, position, count):
    """Return the words of the first `count` tokens of a text; `position` is that of the first."""
    words = []
    for part in np.split(np.arange(count), np.flatnonzero(np.diff(tokens.words[:count])) + 1):
        if len(part) and tokens.words[part[0]] != _NO_WORD:
            start, limit = tokens.starts[part[0]], tokens.limits[part[-1]]
            first = position + int(part[0])
            words.append(Word(index, start, limit, range(first, first + len(part))))
    return words
