"""Makes agreement.npz: the code points with equal ids from tensorflow-text and from Google.

python -m tests.golden.make_agreement     # about two minutes
"""

import numpy as np
import tensorflow as tf
import tensorflow_text

from keras_bert.text import unicode_tables
from keras_bert.text.base_tokenizer import UNKNOWN
from keras_bert.text.fast_tokenizer import FILE
from keras_bert.text.tokenizer import WordPieceTokenizer

_SURROGATES = range(0xD800, 0xE000)


def compare(casing, code_points):
    """Return True for code points with equal ids from both tokenizers in any context; bool (n,).

    `casing` is "lowercase" or "cased"; `code_points` is a list of n code points without surrogates.
    """
    unicode = unicode_tables.tables()
    lower = casing == "lowercase"
    results = {code: unicode.lower_and_decompose(code, lower, lower) for code in code_points}
    # The vocabulary contains each result, since different results would look equal as [UNK].
    known = {char for chars in results.values() for char in chars} - {ord("a"), ord("#")}
    known = sorted(c for c in known if not unicode.space[c] and not unicode.removed[c])
    vocabulary = [UNKNOWN, "a", "##a", *map(chr, known)]
    vocabulary += ["##" + chr(char) for char in known if not unicode.punctuation[char]]
    fast = tensorflow_text.FastBertTokenizer(
        vocabulary, token_out_type=tf.int32, lower_case_nfd_strip_accents=lower
    )
    texts = tf.constant([f"a{chr(code)}a".encode() for code in code_points])
    ours = WordPieceTokenizer(vocabulary, lowercase=lower).tokenize(texts)
    theirs = fast.tokenize(texts)
    width = int(max(ours.bounding_shape()[1], theirs.bounding_shape()[1]))
    ours, theirs = (ids.to_tensor(-1, shape=[None, width]).numpy() for ids in (ours, theirs))
    same = (ours == theirs).all(axis=1)
    return same & np.array(
        [not lower or not _depends_on_context(unicode, code, results) for code in results]
    )


def _depends_on_context(unicode, code, results):
    """Return True if Google's ids depend on the surrounding code points.

    This holds for a final sigma, for combining marks that are kept and sorted, and for a code
    point that becomes several characters, which changes the length of its word.
    """
    kept = [char for char in results[code] if not unicode.mark[char]]
    return (
        code == unicode_tables.CAPITAL_SIGMA
        or len(kept) > 1
        or any(unicode.combining_class[char] for char in kept)
    )


def write(path=FILE, chunk=40_000):
    """Compare all code points, `chunk` at a time, and write the file."""
    code_points = [code for code in range(unicode_tables.CODE_POINTS) if code not in _SURROGATES]
    columns = {}
    for casing in ("lowercase", "cased"):
        equal = np.zeros(unicode_tables.CODE_POINTS, bool)
        for start in range(0, len(code_points), chunk):
            part = code_points[start : start + chunk]
            equal[part] = compare(casing, part)
        columns[casing] = np.packbits(equal)
    np.savez_compressed(path, allow_pickle=False, **columns)


if __name__ == "__main__":
    write()
