"""Texts whose pieces are known before they are tokenized, and records of them."""

import itertools
import random

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["".join(letters) for letters in itertools.product("zkq", "aeiou", "bdm")]
PIECES = [*SPECIAL, *WORDS, "##s", "."]


def documents(count, seed=0, sentences=(1, 8), words=(2, 12)):
    """Documents: lists of sentences, each a list of pieces that ends with a full stop."""
    generator = random.Random(seed)

    def sentence():
        pieces = []
        for _ in range(generator.randint(*words)):
            pieces += [generator.choice(WORDS)] + ["##s"] * (generator.random() < 0.2)
        return [*pieces, "."]

    return [[sentence() for _ in range(generator.randint(*sentences))] for _ in range(count)]


def text(given):
    """Documents as a corpus has them: a paragraph each, blank lines between them."""
    lines = [" ".join(" ".join(s).replace(" ##", "").capitalize() for s in d) for d in given]
    return "".join(f"{line}\n\n" for line in lines)


def ids(given):
    """Documents as ids."""
    number = {piece: index for index, piece in enumerate(PIECES)}
    return [[[number[piece] for piece in sentence] for sentence in d] for d in given]


def preprocessor(pieces=PIECES, **options):
    import keras_bert

    return keras_bert.Preprocessor(pieces, **options)


def build(folder, given, **options):
    """`Records` of documents, or of a text."""
    from keras_bert.pretraining import records

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "corpus.txt"
    file.write_text(given if isinstance(given, str) else text(given), encoding="utf-8")
    options = {"workers": 1, "held_out": 0.0, "shard_bytes": 2000, **options}
    records.build([file], folder / "records", preprocessor(), **options)
    return records.Records(folder / "records")


def in_memory(given):
    """`Documents` without files."""
    import numpy as np

    from keras_bert.pretraining.records import Documents

    numbers = ids(given)
    lengths = [len(sentence) for document in numbers for sentence in document]
    return Documents(
        np.array([id for document in numbers for sentence in document for id in sentence], "<u2"),
        np.cumsum([0, *lengths]),
        np.cumsum([0, *map(len, numbers)]),
    )
