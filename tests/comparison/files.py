"""The files that the programs read: tables, texts and checkpoints."""

import json
import shutil
import warnings

import numpy as np

from tests import tiny

# All programs train with their library's default learning rate, 5e-5. With outputs of the encoder
# that are this much larger, a new head learns within a few steps.
_SCALE = 40.0
_MOODS = {"good": "this film is good!", "bad": "bad film"}
_TAGS = {"film": "B-work", "films": "B-work", "good": "B-mood", "bad": "B-mood"}
_TOPICS = {"film,good": "this film is good", "bad": "so bad!", "bad,film": "bad film", "good": "a"}


def write(folder):
    """Write all files to a folder."""
    rows = [*_MOODS.items(), ("good", "so good"), ("bad", "so bad!")]
    _write_table(folder / "train.tsv", rows * 150)
    _write_table(folder / "dev.tsv", rows * 4)
    _write_table(folder / "topics.tsv", [*_TOPICS.items()] * 150)
    sentences = [["this", "film", "is", "good"], ["so", "bad"], ["a", "films", "is", "so", "good"]]
    blocks = ["".join(f"{word} {_TAGS.get(word, 'O')}\n" for word in s) for s in sentences]
    (folder / "train.conll").write_text("\n".join(blocks * 200))
    (folder / "train.json").write_text(json.dumps({"version": "1.1", "data": _articles(90)}))
    texts = ["this film is good!", "good film", "so bad", "a film", "films", "this is so", "good"]
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    _write_checkpoints(folder)


def _write_table(file, rows):
    file.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows))


def _articles(count):
    paragraphs = []
    for number in range(count):
        for mood in ("good", "bad"):
            context = ["this film is {}!", "a film is {}!", "so {} is a film"][number % 3]
            answer = {"text": mood, "answer_start": context.index("{")}
            qa = {"id": f"{number} {mood}", "question": "is this so", "answers": [answer]}
            paragraphs.append({"context": context.format(mood), "qas": [qa]})
    return [{"title": "films", "paragraphs": paragraphs}]


def _write_checkpoints(folder):
    """Write an encoder and a classifier for both formats, and the encoder with extra tensors."""
    import safetensors.numpy

    import keras_bert

    encoder = _encoder()
    keras_bert.save(encoder, folder / "model", format="huggingface")
    # A preset of a classifier also holds the length of its sequences, which is 512 without it.
    head = keras_bert.heads.classifier(encoder, 2)
    keras_bert.save(head, folder / "preset", format="keras_hub")

    shutil.copytree(folder / "model", folder / "extra")
    file = folder / "extra" / "model.safetensors"
    extra = {"cls.chain.weight": np.ones((3, 128), np.float32)}
    safetensors.numpy.save_file(safetensors.numpy.load_file(file) | extra, file, {"format": "pt"})

    train_set = keras_bert.read(folder / "train.tsv")
    model, _ = keras_bert.finetune(encoder, train_set, show_progress=False)
    keras_bert.save(model, folder / "classification", format="huggingface")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not keep labels")
        keras_bert.save(model, folder / "classifier_preset", format="keras_hub")


def _encoder():
    """Return a narrow encoder whose outputs differ between texts, as after pretraining."""
    import keras_bert

    options = {
        "hidden_size": 128,
        "num_hidden_layers": 1,
        "max_position_embeddings": 512,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    weights = tiny.encoder(**options, initializer_range=0.25).get_weights()
    weights = tiny.encoder(**options, initializer_range=0.25).get_weights()
    preprocessor = keras_bert.Preprocessor(tiny.PIECES, sequence_length=32)
    encoder = tiny.encoder(**options, preprocessor=preprocessor)
    encoder.set_weights(weights)
    for weight in encoder.weights:
        if weight.path.endswith("output_layer_norm/gamma"):
            weight.assign(_SCALE * weight)
        elif weight.path.endswith("pooler/dense/kernel"):  # otherwise its tanh saturates
            weight.assign(weight / (10 * _SCALE))
    return encoder
