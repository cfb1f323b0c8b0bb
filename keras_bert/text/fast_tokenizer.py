"""Faster tokenization with tensorflow-text, with the same ids, for records.

tensorflow-text's FastBertTokenizer folds case (ß to ss, … to ...), keeps U+FFFD and turns control
characters into spaces; Google's tokenizer does not. `agreement.npz` lists the code points with
equal ids from both. Texts with other code points use the graph of `text.tokenizer`, as do exports.
To write the file again: `python -m tests.golden.make_agreement`
"""

import functools
import pathlib

import numpy as np
import tensorflow as tf

from keras_bert.text import unicode_tables
from keras_bert.text.base_tokenizer import UNKNOWN
from keras_bert.text.tables import MAX_WORD_LENGTH
from keras_bert.text.tokenizer import in_parts

FILE = pathlib.Path(__file__).with_name("agreement.npz")
# Google limits words to 200 characters, tensorflow-text limits their bytes. Texts with longer words
# use `tokenizer`; the limit of tensorflow-text is too high for all other texts.
_LONG_WORD = rf"(?s:.*?)[^\x00-\x20]{{{MAX_WORD_LENGTH + 1}}}(?s:.*)"


def tokenize_function(tokenizer):
    """Return the fastest function from strings (batch,) to ids, ragged int32 (batch, tokens).

    It is `tokenizer.tokenize` if tensorflow-text is not installed or lacks the tokenizer's options.
    """
    fast = _fast_tokenizer(tokenizer)
    if fast is None:
        return tokenizer.tokenize
    pattern = _pattern_of(equal_code_points("lowercase" if tokenizer.lowercase else "cased"))

    def tokenize_flat(texts):
        ids = fast.tokenize(texts)
        return ids.values, ids.row_splits

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokenize_all(texts):
        """Return the flat ids and row splits, and True for the texts whose ids are right."""
        with tf.device("CPU:0"):
            is_right = tf.strings.regex_full_match(texts, pattern)
            is_right &= ~tf.strings.regex_full_match(texts, _LONG_WORD)
            return *in_parts(tokenize_flat, texts), is_right

    def tokenize(texts):
        texts = tf.convert_to_tensor(texts, tf.string)
        ids, row_splits, is_right = tokenize_all(texts)
        ids = tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)
        wrong = np.flatnonzero(~is_right.numpy())
        if not len(wrong):
            return ids
        row = np.arange(len(texts))
        row[wrong] = len(texts) + np.arange(len(wrong))
        ids = tf.concat([ids, tokenizer.tokenize(tf.gather(texts, wrong))], axis=0)
        return tf.gather(ids, row)

    return tokenize


def _fast_tokenizer(tokenizer):
    """Return tensorflow-text's tokenizer for the same vocabulary and options, or `None`."""
    if tokenizer.strip_accents != tokenizer.lowercase or not tokenizer.split_cjk:
        return None
    if len(set(tokenizer.vocabulary)) < len(tokenizer.vocabulary) or tokenizer.added_tokens:
        return None
    try:
        import tensorflow_text
    except (ImportError, tf.errors.NotFoundError):  # a symbol of another version of TensorFlow
        return None
    try:
        return tensorflow_text.FastBertTokenizer(
            list(tokenizer.vocabulary),
            token_out_type=tf.int32,
            unknown_token=UNKNOWN,
            max_bytes_per_word=4 * MAX_WORD_LENGTH,
            lower_case_nfd_strip_accents=tokenizer.lowercase,
        )
    except RuntimeError:  # it rejects some vocabularies, for example with control characters
        return None


def _pattern_of(allowed):
    """Return a regular expression for texts of allowed code points; bool (0x110000,)."""
    ranges = unicode_tables.ranges(~allowed)
    return "[^" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]*"


@functools.cache
def equal_code_points(casing):
    """Return True for code points with equal ids in any context; bool (0x110000,).

    `casing` is "lowercase" or "cased".
    """
    with np.load(FILE) as file:
        return np.unpackbits(file[casing], count=unicode_tables.CODE_POINTS).astype(bool)
