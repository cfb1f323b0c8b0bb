"""Question: how often do the ids of other tokenizers of a folder differ from Google's?

keras_bert computes the ids of Google's tokenization.py. `tokenizer.json` is for Hugging Face's
tokenizers; onnxruntime-extensions makes a graph of `vocab.txt`. The script counts the texts whose
ids differ, and prints the first of them.

    .venv-older/bin/python benchmarks/onnx_ids.py ../shared

Needs onnx, transformers, tokenizers and onnxruntime-extensions, and a folder with data/, corpus/
and vocab/ (see benchmarks/README.md).
"""

import argparse
import importlib.metadata
import lzma
import os
import pathlib
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np  # noqa: E402

import keras_bert  # noqa: E402
from keras_bert.text.encoded_texts import EncodedTexts  # noqa: E402

COUNT = 20_000
LENGTH = 512


def read_lines(file, column=0, skip=1):
    """Return a column of a TSV file."""
    lines = file.read_text(encoding="utf-8").split("\n")[skip : COUNT + skip]
    return [line.split("\t")[column] for line in lines if "\t" in line]


def read_corpus(file):
    with lzma.open(file, "rt", encoding="utf-8") as stream:
        return [line.rstrip("\n") for line in stream if line.strip()][:COUNT]


def huggingface(folder, lowercase):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def onnxruntime_extensions(folder, lowercase):
    import onnxruntime
    import transformers
    from onnxruntime_extensions import gen_processing_models, get_library_path

    tokenizer = transformers.BertTokenizer(
        str(folder / "vocab.txt"), do_lower_case=lowercase, model_max_length=LENGTH
    )
    graph, _ = gen_processing_models(tokenizer, pre_kwargs={})
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options)
    [name] = [node.name for node in session.get_inputs()]
    names = [node.name for node in session.get_outputs()]
    index = names.index("input_ids")

    def ids(texts):
        rows = (session.run(None, {name: np.array([text], object)})[index] for text in texts)
        return [truncated(row.ravel().tolist()) for row in rows]

    return ids


def truncated(ids):
    """Truncate as Google's code does: the last token is [SEP]."""
    return ids if len(ids) <= LENGTH else [*ids[: LENGTH - 1], ids[-1]]


TOKENIZERS = {
    "tokenizers": huggingface,
    "onnxruntime-extensions": onnxruntime_extensions,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path)
    shared = parser.parse_args().shared
    for name in TOKENIZERS:
        print(name, importlib.metadata.version(name))
    uncased, cased, korean = (
        shared / "vocab" / f"{name}-vocab.txt"
        for name in ("bert-base-uncased", "bert-base-multilingual-cased", "kcbert-base")
    )
    texts = {
        "SST-2": (read_lines(shared / "data/sst2/train.tsv"), uncased, True),
        "English Wikipedia": (read_corpus(shared / "corpus/en_wiki.txt.xz"), uncased, True),
        "Korean Wikipedia": (read_corpus(shared / "corpus/ko_wiki.txt.xz"), cased, False),
        "NSMC": (read_lines(shared / "data/nsmc/ratings_train.txt", 1), korean, False),
    }
    for title, (rows, vocabulary, lowercase) in texts.items():
        preprocessor = keras_bert.Preprocessor(
            str(vocabulary), sequence_length=None, max_sequence_length=LENGTH, lowercase=lowercase
        )
        encoder = keras_bert.BertEncoder(
            vocab_size=len(preprocessor.vocabulary), hidden_size=2, num_hidden_layers=1,
            num_attention_heads=1, intermediate_size=2, preprocessor=preprocessor,
        )  # fmt: skip
        encoded = EncodedTexts(preprocessor.python_tokenizer, [rows], LENGTH)
        with tempfile.TemporaryDirectory() as folder:
            path = keras_bert.export(encoder, pathlib.Path(folder, "onnx"), format="onnx")
            for name, make in TOKENIZERS.items():
                try:
                    ids_of = make(path, lowercase)
                    different = differing(rows, encoded, ids_of)
                except Exception as error:
                    print(f"{title}, {name}: {type(error).__name__}: {error!s:.200}", flush=True)
                    continue
                line = f"{title}, {name}: {len(different)} of {len(rows):,} texts differ"
                print(line, *map(repr, different[:1]), flush=True)


def differing(texts, encoded, ids_of):
    """Return the texts with other ids than ours."""
    different = []
    for start in range(0, len(texts), 1000):
        part = texts[start : start + 1000]
        rows = np.arange(start, start + len(part))
        inputs, _, _ = encoded.batch(rows, int(encoded.lengths[rows].max()))
        expected = inputs["input_word_ids"]
        lengths = encoded.lengths[rows]
        for text, row, length, ids in zip(part, expected, lengths, ids_of(part), strict=True):
            if ids != row[:length].tolist():
                different.append(text)
    return different


if __name__ == "__main__":
    main()
