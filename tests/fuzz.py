"""Random strings over all of Unicode, mostly of characters that tokenizers handle wrongly."""

import numpy as np

EDGES = {
    "ascii": [*range(0x20, 0x7F)],
    "letters": [*range(ord("a"), ord("z") + 1)] * 2 + [*range(ord("A"), ord("Z") + 1)],
    "control": [*range(0, 0x20), *range(0x7F, 0xA0), 0xAD, 0xFEFF, 0xFFFD, *range(0x200B, 0x2010)],
    "space": [0x20, 9, 10, 13, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000],
    "line": [0x2028, 0x2029, 0x85, 0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x1F, 0x180E],
    "latin": [*range(0xC0, 0x250), *range(0x1E00, 0x1F00), 0x212A, 0x2126, 0x212B],
    "marks": [*range(0x300, 0x370), *range(0x483, 0x488), *range(0x591, 0x5BE), 0x20D0, 0xFE20],
    "spacing marks": [0x302E, 0x302F, 0x1D165, 0x1D166, 0x1D16D, 0x1D160, 0x16FF0, 0x9CB, 0x9BE],
    "greek": [0x3A3, 0x3C3, 0x3C2, *range(0x386, 0x3CF), *range(0x1F00, 0x2000)],
    "sigma": [0x3A3, 0x3A3, 0x41, 0x61, 0x27, 0x2E, 0xB7, 0xAD, 0x345, 0x2019, 0x20, 0x2B0, 0x31],
    "turkish": [0x130, 0x131, 0x49, 0x69, 0x307],
    "indic": [*range(0x900, 0xE00)],
    "cjk": [*range(0x4E00, 0x4F00), 0x9FFF, 0xA000, 0x33FF, 0x3400, 0x4DBF, 0x4DC0, 0x20000,
            0x2A6DF, 0x2A6E0, 0x2A700, 0x2B740, 0x2B820, 0x2CEAF, 0x2CEB0, 0xF900, 0xFAFF,
            0x2F800, 0x2FA1F, 0x2FA20],
    "kana": [*range(0x3041, 0x3100)],
    "hangul": [*range(0xAC00, 0xAD00), 0xD7A3, 0xD7A4, *range(0x1100, 0x1200),
               *range(0x3131, 0x318F)],
    "emoji": [*range(0x1F300, 0x1F650), 0x200D, 0xFE0F, *range(0x1F3FB, 0x1F400), 0x1F1F0],
    "surrogate-adjacent": [0xD7FF, 0xE000, 0xE001, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF],
    "punctuation": [*range(0x2010, 0x2028), *range(0x3001, 0x3020), 0xBF, 0xA1, 0x2E2F, 0x226E,
                    0x2260],
}  # fmt: skip


def random_texts(count, seed, vocabulary=(), allowed=lambda code_point: True):
    """Yield random strings.

    Args:
        count: number of strings.
        seed: seed of the generator.
        vocabulary: tokens to mix in, so that not all words are [UNK].
        allowed: function from a code point to True if it may occur.
    """
    rng = np.random.default_rng(seed)
    pools = [np.array([c for c in pool if allowed(c)]) for pool in EDGES.values()]
    anywhere = np.array(
        [c for c in rng.integers(0, 0x110000, 20000).tolist()
         if not 0xD800 <= c <= 0xDFFF and allowed(c)]
    )  # fmt: skip
    pools = [pool for pool in [*pools, anywhere, anywhere] if len(pool)]
    words = [token.removeprefix("##") for token in vocabulary]
    words = [word for word in words if all(map(allowed, map(ord, word)))]
    for number in range(count):
        if number % 50 == 0:  # a word of about 200 characters, the limit
            pool = pools[rng.integers(len(pools))]
            codes = rng.choice(pool if number % 100 else pools[1], rng.integers(150, 251))
            yield "x " + "".join(map(chr, codes)) + " y"
            continue
        parts = []
        for _ in range(rng.integers(0, 6)):
            kind = rng.integers(4)
            if kind == 0 and words:
                parts.append(words[rng.integers(len(words))])
            elif kind == 1 and words:
                word = words[rng.integers(len(words))]
                parts.append(word + words[rng.integers(len(words))] + " ")
            else:
                pool = pools[rng.integers(len(pools))]
                parts.append("".join(map(chr, rng.choice(pool, rng.integers(1, 8)))))
        yield "".join(parts)
