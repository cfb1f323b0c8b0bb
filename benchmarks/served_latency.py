"""Question: how long does an exported model take for a text, compared with KerasHub's recipe?

MiniLM with a new classifier is exported twice: by `keras_bert.export`, and by Keras' ExportArchive
with KerasHub's classifier and its preprocessor at length 128, in one endpoint that takes strings.
Both are loaded in one process and called in alternation. Each figure is the median of the calls,
for one text of 20 words, one text of 5 words, and a batch of 32 texts of SST-2's dev set. The time
of preprocessing is the difference between `serving_default` and the signature `ids` for a text.

    python benchmarks/served_latency.py ../shared/data/sst2/dev.tsv

The script also prints the exported sizes. Needs keras-hub.
"""

import argparse
import importlib.metadata
import os
import pathlib
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import keras_bert
import keras_bert.hub.resolve
from keras_bert.data import tabular

TEXT = "the film was long and a little slow but its end made up for it all so see it soon"
LABELS = ["bad", "good"]


def export_ours(folder):
    model = keras_bert.heads.classifier(keras_bert.load("minilm"), labels=LABELS)
    size = sum(weight.numpy().nbytes for weight in model.weights)
    return keras_bert.export(model, folder), size, model.get_layer("bert_encoder").preprocessor


def export_theirs(folder):
    import keras_hub

    preset = str(keras_bert.hub.resolve.find("minilm"))
    tokenizer = keras_hub.models.BertTokenizer.from_preset(preset)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=128)
    backbone = keras_hub.models.BertBackbone.from_preset(preset)
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=len(LABELS))
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "serving_default",
        lambda text: tf.nn.softmax(model(preprocessor(text), training=False)),
        [tf.TensorSpec([None], tf.string, name="text")],
    )
    archive.write_out(str(folder), verbose=False)
    return folder


def median(calls, rounds):
    """Run the calls in alternation. Return the median milliseconds of each."""
    times = {name: [] for name in calls}
    for turn in range(rounds + 3):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn >= 3:
                times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sst2", type=pathlib.Path, help="SST-2's dev.tsv")
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    for name in ("keras", "tensorflow", "keras-hub"):
        print(name, importlib.metadata.version(name))
    batch = tabular.read(args.sst2, text="sentence", label="label").texts[:32]
    with tempfile.TemporaryDirectory() as folder:
        version, size, preprocessor = export_ours(pathlib.Path(folder, "ours"))
        written = sum(file.stat().st_size for file in version.rglob("*") if file.is_file())
        print(f"exported: {written / 2**20:.1f} MiB, {written / size:.3f} of the weights")
        theirs = export_theirs(pathlib.Path(folder, "theirs"))
        ours, theirs = (tf.saved_model.load(str(path)).signatures for path in (version, theirs))
        for title, texts in {
            "20 words": [TEXT],
            "5 words": [" ".join(TEXT.split()[:5])],
            "32 texts": batch,
        }.items():
            text = tf.constant(texts)
            ids = preprocessor.pack(
                preprocessor.tokenizer.tokenize(texts),
                sequence_length=None,
                max_sequence_length=preprocessor.max_sequence_length,
            )
            calls = {
                "keras_bert": lambda text=text: ours["serving_default"](text=text),
                "ids": lambda ids=ids: ours["ids"](**ids),
                "keras_hub": lambda text=text: theirs["serving_default"](text=text),
            }
            rounds = args.rounds if len(texts) == 1 else max(3, args.rounds // 5)
            times = median(calls, rounds)
            print(
                f"{title}: keras_bert {times['keras_bert']:.1f} ms, of it preprocessing "
                f"{times['keras_bert'] - times['ids']:.2f} ms; keras_hub "
                f"{times['keras_hub']:.1f} ms, {times['keras_hub'] / times['keras_bert']:.1f}x"
            )


if __name__ == "__main__":
    main()
