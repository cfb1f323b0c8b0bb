"""Google's BERT tokenizer in plain Python, one text at a time: the reference of the tests.

Written from the behavior of `FullTokenizer` in google-research/bert `tokenization.py`. It shares
only the vocabulary with the graph. It uses `unicodedata`, whose version depends on Python; see
`stable`.
"""

import unicodedata

from keras_bert.text import unicode_tables as frozen

IDEOGRAPHS = (
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
)
ASCII_PUNCTUATION = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def clean(text):
    kept = []
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            kept.append(" ")
        elif char not in "\0\ufffd" and unicodedata.category(char) not in ("Cc", "Cf"):
            kept.append(char)
    return "".join(kept)


def space_out_ideographs(text):
    return "".join(
        f" {char} " if any(ord(char) in block for block in IDEOGRAPHS) else char for char in text
    )


def split_punctuation(token):
    words = [""]
    for char in token:
        if char in ASCII_PUNCTUATION or unicodedata.category(char).startswith("P"):
            words += [char, ""]
        else:
            words[-1] += char
    return [word for word in words if word]


def basic_tokens(text, lowercase, strip_accents, split_cjk):
    text = clean(text)
    if split_cjk:
        text = space_out_ideographs(text)
    words = []
    for token in text.split():
        if lowercase:
            token = token.lower()
        if strip_accents:
            token = "".join(
                char
                for char in unicodedata.normalize("NFD", token)
                if unicodedata.category(char) != "Mn"
            )
        words += split_punctuation(token)
    return " ".join(words).split()


def word_tokens(word, ids):
    if len(word) > 200:
        return ["[UNK]"]
    tokens, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            token = ("##" if start else "") + word[start:end]
            if token in ids:
                break
        else:
            return ["[UNK]"]
        tokens.append(token)
        start = end
    return tokens


class ReferenceTokenizer:
    def __init__(self, vocabulary, lowercase=True, strip_accents=None, split_cjk=True):
        self.ids = {token: index for index, token in enumerate(vocabulary)}
        self.options = (lowercase, lowercase if strip_accents is None else strip_accents, split_cjk)
        self._seen = {}

    def tokenize(self, text):
        ids = []
        for word in basic_tokens(text, *self.options):
            if word not in self._seen:
                self._seen[word] = [self.ids[token] for token in word_tokens(word, self.ids)]
            ids += self._seen[word]
        return ids


def stable(code_point):
    """Return True if the running Python agrees with the frozen tables on this code point.

    Later Unicode versions assign new code points.
    """
    if unicodedata.unidata_version == frozen.UNICODE_VERSION:
        return True
    tables, char = frozen.tables(), chr(code_point)
    category = unicodedata.category(char)
    return (
        tables.mark[code_point] == (category == "Mn")
        and tables.punctuation[code_point]
        == (category.startswith("P") or char in ASCII_PUNCTUATION)
        and tables.combining_class[code_point] == unicodedata.combining(char)
        and tables.lower.get(code_point, (code_point,)) == tuple(map(ord, char.lower()))
        and tables.decomposition.get(code_point, (code_point,))
        == tuple(map(ord, unicodedata.normalize("NFD", char)))
        and (category in ("Cc", "Cf"))
        <= bool(tables.removed[code_point] | tables.space[code_point])
    )
