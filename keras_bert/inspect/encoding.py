"""One text or pair of texts as the input of a model, with its tokens and words."""

import dataclasses
import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_bert import heads
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import inference
from keras_bert.tasks.masked_lm import MASK
from keras_bert.text.offsets import characters_of_bytes

MASKED_LM_TASKS = ("masked_lm", "pretraining")
# Tasks that read single texts or pairs, whichever they get.
_TAKE_BOTH = (None, *MASKED_LM_TASKS)
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
    tokenize = preprocessor.tokenizer.tokenize_with_offsets
    if getattr(heads.find_output(model), "characters", False):
        tokenize = preprocessor.tokenizer.tokenize_characters_with_offsets
    reads_masks, mask_id = heads.find_task(model) in MASKED_LM_TASKS, None
    if reads_masks and MASK in preprocessor.vocabulary:
        mask_id = preprocessor.tokenizer.token_id(MASK)
    tokenized = [_tokenize(tokenize, each, mask_id) for each in texts]
    packed = preprocessor.pack(
        *(ids for ids, *_ in tokenized), sequence_length=None, max_sequence_length=limit
    )
    inputs = {name: value.numpy() for name, value in packed.items()}
    if reads_masks:
        _, positions = np.nonzero(inputs["input_word_ids"] == mask_id)
        inputs["masked_lm_positions"] = positions[None].astype(np.int32)
    tokens = [preprocessor.vocabulary[index] for index in inputs["input_word_ids"][0]]
    total = sum(ids.flat_values.shape[0] for ids, *_ in tokenized) + 1 + len(texts)
    if total > len(tokens):
        warnings.warn(
            f"the text was truncated from {total} to {len(tokens)} tokens, the maximum of the "
            "model. Shorten it, or look at its parts one by one",
            stacklevel=level_of_caller(),
        )
    words = []
    for index, (position, count) in enumerate(_parts(inputs["input_type_ids"][0], len(texts))):
        words += _words(index, texts[index], tokenized[index][1:], position, count)
    return EncodedText(inputs, tokens, texts, words)


def _check(model, text, text_pair):
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"model must be a Keras model; received {model!r:.80}. Load it with keras_bert.load; a "
            "pipeline has its model as `pipeline.model`"
        )
    for name, value in (("text", text), ("text_pair", text_pair)):
        if not isinstance(value, str) and (name == "text" or value is not None):
            raise ValueError(f"{name} must be one string; received {value!r:.80}")
    task, output = heads.find_task(model), heads.find_output(model)
    if task in _TAKE_BOTH:
        return
    reads_pairs = output.pairs or task == "multiple_choice"
    if reads_pairs and text_pair is None:
        names = {"span_selector": "a question and its context", "multiple_choice": "a text and one "
                 "of its choices"}  # fmt: skip
        pair = names.get(task, "two texts")
        raise ValueError(f"{model.name!r} reads pairs, {pair}; give the second as text_pair")
    if not reads_pairs and text_pair is not None:
        raise ValueError(f"{model.name!r} reads single texts; remove text_pair")


def _tokenize(tokenize, text, mask_id):
    """Return the results of `tokenize` for one text.

    With `mask_id`, each [MASK] is a token, and the index of its word is `_NO_WORD`.
    """
    parts = [text] if mask_id is None else text.split(MASK)
    parts = [part.encode("utf-8", "ignore") for part in parts]
    ids, words, starts, limits = ([] for _ in range(4))
    first_byte = 0
    for part, *found in zip(parts, *tokenize(tf.constant(parts)), strict=True):
        if first_byte:
            ids.append([mask_id])
            words.append([_NO_WORD])
            starts.append([first_byte - len(MASK)])
            limits.append([first_byte])
        part_ids, part_words, part_starts, part_limits = (values.numpy() for values in found)
        ids.append(part_ids)
        words.append(part_words + sum(map(len, words)))
        starts.append(part_starts + first_byte)
        limits.append(part_limits + first_byte)
        first_byte += len(part) + len(MASK)
    return [
        tf.RaggedTensor.from_tensor(tf.constant(np.concatenate(values), dtype)[None])
        for values, dtype in zip(
            (ids, words, starts, limits), (tf.int32, tf.int32, tf.int64, tf.int64), strict=True
        )
    ]


def _parts(type_ids, count):
    """Return the position of the first token and the number of tokens of each text."""
    if count == 1:
        return [(1, len(type_ids) - 2)]
    second = int(np.argmax(type_ids))  # its last [SEP] has type 1 too, so there is a 1
    return [(1, second - 2), (second, len(type_ids) - second - 1)]


def _words(index, text, tokenized, position, count):
    """Return the words of the first `count` tokens of a text; `position` is that of the first."""
    of_word, starts, limits = (values.flat_values.numpy()[:count] for values in tokenized)
    of_byte = characters_of_bytes(text)
    words = []
    for part in np.split(np.arange(count), np.flatnonzero(np.diff(of_word)) + 1):
        if len(part) and of_word[part[0]] != _NO_WORD:
            start, end = int(of_byte[starts[part[0]]]), int(of_byte[limits[part[-1]] - 1]) + 1
            first = position + int(part[0])
            words.append(Word(index, start, end, range(first, first + len(part))))
    return words
