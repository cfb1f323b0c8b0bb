"""Question: how often do the ids of an ONNX folder's tokenizer.json differ from Google's?

`tokenizer.json` is for Hugging Face's tokenizers, which case-fold and split some characters in
another way than Google's tokenization.py, whose ids keras_bert computes. The script counts the
texts whose ids differ, and prints the first of them.

    python benchmarks/onnx_ids.py ../shared

Needs onnx and tokenizers, and a folder with data/, corpus/ and vocab/ (see benchmarks/README.md).
"""

import argparse
import os
import pathlib
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import tokenizers
from tokenizer_speed import read_column, read_corpus

import keras_bert

COUNT = 20_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path)
    shared = parser.parse_args().shared
    uncased, cased, korean = (
        shared / "vocab" / f"{name}-vocab.txt"
        for name in ("bert-base-uncased", "bert-base-multilingual-cased", "kcbert-base")
    )
    texts = {
        "SST-2": (read_column(shared / "data/sst2/train.tsv", 0, COUNT), uncased, True),
        "English Wikipedia": (read_corpus(shared / "corpus/en_wiki.txt.xz", COUNT), uncased, True),
        "Korean Wikipedia": (read_corpus(shared / "corpus/ko_wiki.txt.xz", COUNT), cased, False),
        "NSMC": (read_column(shared / "data/nsmc/ratings_train.txt", 1, COUNT), korean, False),
    }
    for name, (rows, vocabulary, lowercase) in texts.items():
        preprocessor = keras_bert.Preprocessor(
            str(vocabulary), sequence_length=None, max_sequence_length=512, lowercase=lowercase
        )
        encoder = keras_bert.BertEncoder(
            vocab_size=len(preprocessor.vocabulary), hidden_size=2, num_hidden_layers=1,
            num_attention_heads=1, intermediate_size=2, preprocessor=preprocessor,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = keras_bert.export(encoder, pathlib.Path(folder, "onnx"), format="onnx")
            theirs = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        different = []
        for start in range(0, len(rows), 1000):
            part = rows[start : start + 1000]
            packed = preprocessor(part)
            ids, mask = (packed[key].numpy() for key in ("input_word_ids", "input_mask"))
            for text, row, length, encoding in zip(
                part, ids, mask.sum(axis=1), theirs.encode_batch(part), strict=True
            ):
                found = [i for i, m in zip(encoding.ids, encoding.attention_mask, strict=True) if m]
                if found != row[:length].tolist():
                    different.append(text)
        print(f"{name}: {len(different)} of {len(rows):,} texts differ", *map(repr, different[:1]))


if __name__ == "__main__":
    main()
