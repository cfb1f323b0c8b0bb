"""tensorflow-text as an accelerator: the reference's ids at several times its speed.

tensorflow-text's FastBertTokenizer is much faster than the graph in `tokenizer`, but it is not
Google's tokenizer: it folds case (ß to ss, … to ...), keeps U+FFFD, turns control characters
into spaces. It looks at one code point at a time, though, so where both agree on each code
point of a text, they agree on the text. `agreement.npz` holds the code points on which they
agree, found by asking both, and

    python -m keras_bert.text.fast_tokenizer

asks again and writes that file. This is for training only: ops of tensorflow-text never enter
an exported graph.
"""

import functools
import pathlib

import numpy as np
import tensorflow as tf

from keras_bert.text import unicode_tables
from keras_bert.text.tokenizer import MAX_WORD_LENGTH, UNKNOWN, WordPieceTokenizer, in_parts

_FILE = pathlib.Path(__file__).with_name("agreement.npz")
_SURROGATES = range(0xD800, 0xE000)


@functools.lru_cache(maxsize=8)
def tokenize_function(tokenizer):
    """The fastest exact `tokenize` there is for a tokenizer on this machine.

    Args:
        tokenizer: a `WordPieceTokenizer`.

    Returns:
        A function from strings (batch,) to a `tf.RaggedTensor` int32 (batch, pieces), with the
        same ids as `tokenizer.tokenize`; that very method where tensorflow-text is not
        installed or has no such options.

    Example:

    >>> tokenize = tokenize_function(WordPieceTokenizer(["[UNK]", "play", "##ing"]))
    >>> tokenize(["Playing"]).to_list()
    [[1, 2]]
    """
    fast = _fast_tokenizer(tokenizer)
    if fast is None:
        return tokenizer.tokenize
    agreed = agreement("lowercase" if tokenizer.lowercase else "cased")
    pattern = _only(agreed)
    # Google's limit is 200 characters a word, tensorflow-text's is in bytes. So its limit is
    # out of the way, and texts with a longer run of anything but white space go the other way.
    long_run = rf"(?s:.*?)[^\x00-\x20]{{{MAX_WORD_LENGTH + 1}}}(?s:.*)"

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokenize(texts):
        with tf.device("CPU:0"):
            easy = tf.strings.regex_full_match(texts, pattern)
            easy &= ~tf.strings.regex_full_match(texts, long_run)

            def mixed():
                hard = tf.where(~easy)[:, 0]
                easy_at = tf.where(easy)[:, 0]
                both = tf.concat(
                    [
                        fast.tokenize(tf.gather(texts, easy_at)),
                        tokenizer.tokenize(tf.gather(texts, hard)),
                    ],
                    axis=0,
                )
                order = tf.argsort(tf.concat([easy_at, hard], 0))
                both = tf.gather(both, order)
                return both.values, both.row_splits

            def all_easy():
                ids = fast.tokenize(texts)
                return ids.values, ids.row_splits

            return tf.cond(tf.reduce_all(easy), all_easy, mixed)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokenize_in_parts(texts):
        return in_parts(tokenize, texts)

    def tokenize_ragged(texts):
        run = tokenize_in_parts if tf.executing_eagerly() else tokenize
        ids, row_splits = run(tf.convert_to_tensor(texts, tf.string))
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    return tokenize_ragged


def _fast_tokenizer(tokenizer):
    """tensorflow-text's tokenizer of the same vocabulary and options, or `None`."""
    if tokenizer.strip_accents != tokenizer.lowercase or not tokenizer.split_cjk:
        return None
    if len(set(tokenizer.vocabulary)) < len(tokenizer.vocabulary):
        return None
    try:
        import tensorflow_text
    except ImportError:
        return None
    try:
        return tensorflow_text.FastBertTokenizer(
            list(tokenizer.vocabulary),
            token_out_type=tf.int32,
            unknown_token=UNKNOWN,
            max_bytes_per_word=4 * MAX_WORD_LENGTH,
            lower_case_nfd_strip_accents=tokenizer.lowercase,
        )
    except RuntimeError:  # it refuses some vocabularies, with control characters for instance
        return None


def _only(allowed):
    """A pattern for texts made of allowed code points only."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], ~allowed, [0]]).astype(np.int8)))
    ranges = [(first, limit - 1) for first, limit in edges.reshape(-1, 2)]
    return "[^" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]*"


@functools.cache
def agreement(casing):
    """Code points that tensorflow-text and the reference treat alike in any context.

    Args:
        casing: `"lowercase"` or `"cased"`.

    Returns:
        bool (0x110000,).

    Example:

    >>> bool(agreement("lowercase")[ord("A")]), bool(agreement("lowercase")[ord("ß")])
    (True, False)
    """
    with np.load(_FILE) as file:
        return np.unpackbits(file[casing], count=unicode_tables.CODE_POINTS).astype(bool)


def ask(casing, code_points):
    """Asks both tokenizers what they make of code points.

    Args:
        casing: `"lowercase"` or `"cased"`.
        code_points: a list of them, no surrogates.

    Returns:
        bool, as many: whether both do the same, and do so whatever stands around.
    """
    import tensorflow_text

    tables, lower = unicode_tables.tables(), casing == "lowercase"
    results = {}
    for code in code_points:
        chars = tables.lower.get(code, (code,)) if lower else (code,)
        if lower:
            chars = [d for char in chars for d in tables.decomposition.get(char, (char,))]
        results[code] = chars
    # A vocabulary that knows each result, so that no difference hides behind [UNK].
    known = {char for chars in results.values() for char in chars} - {ord("a"), ord("#")}
    known = sorted(c for c in known if not tables.space[c] and not tables.removed[c])
    vocabulary = [UNKNOWN, "a", "##a", *map(chr, known)]
    vocabulary += ["##" + chr(char) for char in known if not tables.punctuation[char]]
    fast = tensorflow_text.FastBertTokenizer(
        vocabulary, token_out_type=tf.int32, lower_case_nfd_strip_accents=lower
    )
    texts = tf.constant([f"a{chr(code)}a".encode() for code in code_points])
    ours = WordPieceTokenizer(vocabulary, lowercase=lower).tokenize(texts)
    theirs = fast.tokenize(texts)
    width = int(max(ours.bounding_shape()[1], theirs.bounding_shape()[1]))
    ours, theirs = (ids.to_tensor(-1, shape=[None, width]).numpy() for ids in (ours, theirs))
    same = (ours == theirs).all(axis=1)
    return same & np.array([not lower or not _depends(tables, code, results) for code in results])


def _depends(tables, code, results):
    """Whether the reference looks beyond this code point when it lower-cases.

    So it does for a final sigma, for combining marks that stay and are put in order, and for
    what becomes several characters and so changes the length of its word.
    """
    left = [char for char in results[code] if not tables.mark[char]]
    return (
        code == unicode_tables.CAPITAL_SIGMA
        or len(left) > 1
        or any(tables.combining_class[char] for char in left)
    )


def write(path=_FILE, chunk=40_000):
    """Asks about all of Unicode and writes the frozen file; takes about two minutes.

    Args:
        path: where to.
        chunk: code points a question.
    """
    code_points = [code for code in range(unicode_tables.CODE_POINTS) if code not in _SURROGATES]
    columns = {}
    for casing in ("lowercase", "cased"):
        alike = np.zeros(unicode_tables.CODE_POINTS, bool)
        for start in range(0, len(code_points), chunk):
            part = code_points[start : start + chunk]
            alike[part] = ask(casing, part)
        columns[casing] = np.packbits(alike)
    np.savez_compressed(path, allow_pickle=False, **columns)


if __name__ == "__main__":
    write()
