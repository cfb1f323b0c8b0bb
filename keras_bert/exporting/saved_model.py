"""A Keras model as a SavedModel that takes strings, for TensorFlow Serving.

The graph holds the tokenizer, the encoder and the head, and only ops of TensorFlow's core
registry: it needs no Keras, no tensorflow-text, and no file outside its folder.
"""

import contextlib
import errno
import os
import pathlib
import shutil
import tempfile

import keras
import tensorflow as tf

from keras_bert import heads, keras_internals
from keras_bert.encoder import BertEncoder
from keras_bert.exporting import model_card, signatures, tf_serving, tfhub
from keras_bert.exporting.hub_layer import HubLayer

LABELS_FILE = "labels.txt"


def export(model, path, *, metrics=None, license=None):
    """Writes a model as SavedModels: one for TensorFlow Serving, or an encoder's reusable pair.

    A `BertEncoder`, or a model of `heads.pretraining`, becomes `path/preprocess/1` and
    `path/encoder/1`, with the names of TF-Hub's BERTs (see `serving.pair`): strings to the
    encoder's inputs, and those to its outputs, for `hub.load`, `hub.KerasLayer` or
    `tf.saved_model.load`. Any other model becomes the next version in a model folder.

    A model of `keras_bert.heads` gets two signatures. `serving_default` takes strings (batch,):

    classifier: `text` (and `text_pair` for a model of pairs) to `label`, `score`, its
        probability, and `probabilities` (batch, classes) in the order of
        `assets/labels.txt`; of label sets to `probabilities` and `chosen`.
    next_sentence: as a classifier of pairs.
    regressor: `text` (and `text_pair`) to `score`.
    embedder: `text` to `embedding` (batch, hidden).
    tagger: `text` to `token`, `tag`, `score`, and `start` and `end` in bytes, all (batch, words);
        `count`, how many of the words are real.
    span_selector: `question`, `context` to `answer`, `start`, `end` (bytes), `score`.
    multiple_choice: `text` and `choices` (batch, choices) to `choice`, `probabilities`.
    masked_lm: `text` with [MASK] to `candidates` and `scores` (batch, blanks, 5).

    `ids` takes the model's own int32 inputs to the same answers, where they are about positions
    (tagger, span_selector, masked_lm) to those of each position.
    A functional model of your own that starts at a string `keras.Input` has the one signature
    serving_default, from the names of its inputs to the names of its outputs.
    With the version go warm-up requests; beside it `models.config`, `batching.config` and
    `compose.yaml`, a Compose file for the official `tensorflow/serving` image; and a model card,
    `README.md`, which is brought up to date with each version until you change it. Files of yours
    stay as they are. A README.md around the model folders that has a place for a table of them, as
    `saved_models/` has, gets it filled (see `serving.card.index`).

    Texts are padded to the longest of their batch and cut at the preprocessor's
    `max_sequence_length`, so short texts are cheap.

    Args:
        model: the trained model; the TensorFlow backend.
        path: folder of the model; the version is written to `path/1`, or the number after the
            last one there.
        metrics: dict for the model card, such as `train.finetune` gives.
        license: of the weights that training started from, for the card.

    Returns:
        The `pathlib.Path` of the version's folder; of the pair, that of the encoder's version. It
        appears when it is complete.

    Raises:
        ValueError: another backend, a model that holds no vocabulary, or a model that cannot be
            exported from strings.
        OSError: the folder cannot be written; nothing half-written is left.

    Example:

    >>> import keras_bert
    >>> preprocessor = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = keras_bert.BertEncoder(
    ...     vocab_size=5, hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, preprocessor=preprocessor)
    >>> model = keras_bert.heads.classifier(encoder, labels=["no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     served = tf.saved_model.load(str(export(model, folder)))
    ...     answer = served.signatures["serving_default"](text=tf.constant(["good"]))
    >>> sorted(answer), answer["probabilities"].shape
    (['label', 'probabilities', 'score'], TensorShape([1, 2]))
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "export writes TensorFlow graphs and needs KERAS_BACKEND=tensorflow; this process "
            f"runs {keras.backend.backend()}. Save the model and load it there: the file is the "
            "same for all backends"
        )
    path = pathlib.Path(path).expanduser()
    output = heads.find_output(model)
    if isinstance(model, BertEncoder) or heads.find_task(model) == "pretraining":
        return _export_pair(model, path, metrics, license)
    with tempfile.TemporaryDirectory() as assets:
        if any(item.dtype == "string" for item in model.inputs):
            module, functions = _own_model(model)
        elif output is not None and output.task in signatures.HEADS:
            module, functions = _head(model, output, assets)
        else:
            raise ValueError(
                f"{model.name!r} must end in a head of keras_bert.heads or start at a "
                "string keras.Input; received neither, so there is nothing to serve strings with"
            )
        return _write(module, functions, path, _about(model, output, metrics, license))


def _export_pair(model, path, metrics, license):
    """Writes preprocess and encoder; the encoder last, since it says that all is there."""
    encoder = heads.find_encoder(model)
    masked_lm = None if model is encoder else model.get_layer("masked_lm")
    with tempfile.TemporaryDirectory() as assets, contextlib.ExitStack() as half_written:
        if encoder.preprocessor is not None:
            longest = min(tfhub.SEQUENCE_LENGTH, _longest(encoder))
            module, functions = tfhub.preprocess(encoder.preprocessor, assets, longest)
            tokenizer = _tokenizer(encoder)
            about = model_card.About(
                "preprocess", tokenizer=tokenizer, longest=longest, license=license
            )
            made = [part for part in (path, path / "preprocess") if not part.exists()]
            version = _write(module, functions, path / "preprocess", about)
            # One half of a pair would be counted as a version of both.
            half_written.callback(shutil.rmtree, (*made, version)[0])
        module, functions = tfhub.encoder(encoder, assets, masked_lm)
        about = _about(model, None, metrics, license)._replace(task="encoder", longest=None)
        version = _write(module, functions, path / "encoder", about)
        half_written.pop_all()
        return version


def _about(model, output, metrics, license):
    """What the model card says of a model, as far as its layers tell."""
    about = model_card.About(parameters=model.count_params(), metrics=metrics, license=license)
    try:
        encoder = heads.find_encoder(model)
    except ValueError:  # a model of the user's own may have none, or several
        return about
    about = about._replace(config=encoder.get_config(), tokenizer=_tokenizer(encoder))
    if output is None or any(item.dtype == "string" for item in model.inputs):
        return about
    return about._replace(
        task="label_sets" if output.multi_label else output.task,
        labels=output.labels,
        longest=_longest(encoder),
    )


def _tokenizer(encoder):
    preprocessor = encoder.preprocessor
    if preprocessor is None:
        return None
    options = {key: getattr(preprocessor, key) for key in model_card.TOKENIZER_OPTIONS}
    return {"pieces": len(preprocessor.vocabulary), **options}


def _longest(encoder):
    """Pieces of the longest sequence that the encoder is given."""
    positions = encoder.get_config()["max_position_embeddings"]
    return min(encoder.preprocessor.max_sequence_length, positions)


def _head(model, output, assets):
    """A module with the signatures of a head."""
    encoder = heads.find_encoder(model)
    preprocessor = encoder.preprocessor
    if preprocessor is None:
        raise ValueError(
            f"the encoder of {model.name!r} has no preprocessor, so it has no vocabulary to "
            "serve strings with; set encoder.preprocessor"
        )
    texts, specs, ids = signatures.HEADS[output.task](
        model, output, preprocessor, _longest(encoder)
    )
    module = _module(model)
    if output.labels is not None:
        module.labels = tf.saved_model.Asset(_write_labels(assets, output.labels))
    module.serving_default = tf.function(
        signatures.checked(texts, specs), input_signature=specs, autograph=False
    )
    module.ids = tf.function(
        lambda *values: ids(dict(zip(model.input, values, strict=True))),
        input_signature=[
            tf.TensorSpec(value.shape, tf.int32, name=name) for name, value in model.input.items()
        ],
        autograph=False,
    )
    return module, {"serving_default": module.serving_default, "ids": module.ids}


def _flat(key, value):
    """Names an output; those in a list, such as `encoder_outputs`, by number."""
    if isinstance(value, (list, tuple)):
        return [(f"{key}_{number}", item) for number, item in enumerate(value)]
    return [(key, value)]


def _module(model):
    """A module that holds the model's variables, and not those of its optimizer."""
    module = tf.Module()
    module.model_variables = [variable.value for variable in model.variables]
    # What else their functions hold, such as tables.
    layers = keras_internals.all_layers(model)
    module.hub_layers = [item._loaded for item in layers if isinstance(item, HubLayer)]
    return module


def _write_labels(folder, labels):
    file = pathlib.Path(folder, LABELS_FILE)
    file.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8", newline="\n")
    return str(file)


def _own_model(model):
    """A module with the one signature of a user's functional model on strings."""
    inputs = [
        tf.TensorSpec(
            [None, *item.shape[1:]], item.dtype, name=keras_internals.producing_operation(item).name
        )
        for item in model.inputs
    ]
    names = model.output_names

    def serve(*values):
        outputs = model(keras.tree.pack_sequence_as(model.input, list(values)), training=False)
        if isinstance(outputs, dict):
            return {name: tensor for key in outputs for name, tensor in _flat(key, outputs[key])}
        return dict(zip(names, keras.tree.flatten(outputs), strict=True))

    module = _module(model)
    module.serving_default = tf.function(serve, input_signature=inputs, autograph=False)
    return module, {"serving_default": module.serving_default}


def _write(module, functions, path, about):
    """Writes beside, then renames: a server never sees half a version."""
    inputs = functions["serving_default"].input_signature
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    # TensorFlow Serving looks at folders named by a number only.
    beside = pathlib.Path(tempfile.mkdtemp(prefix=".writing-", dir=path))
    try:
        tf.saved_model.save(module, str(beside), signatures=functions)
        tf_serving.write_warmup(beside, inputs)
        beside.chmod(0o755)
        version = _rename_to_next_version(beside, path)
        tf_serving.write_settings(path, inputs)
        model_card.write(version, about)
        for folder in list(version.resolve().parents)[1:3]:  # of a pair the one above, too
            with contextlib.suppress(OSError):  # not ours to write, or not ours to read
                model_card.index(folder)
        return version
    except tf.errors.OpError as error:
        reason = str(error).splitlines()[0]
        raise OSError(f"{path} could not be written: {reason}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        with contextlib.suppress(OSError):  # after a success they are not empty, and stay
            for folder in made:
                folder.rmdir()


def _rename_to_next_version(beside, path):
    while True:
        taken = [int(entry.name) for entry in path.iterdir() if entry.name.isdecimal()]
        version = path / str(max(taken, default=0) + 1)
        try:
            os.rename(beside, version)
            return version
        except OSError as error:  # another process took the number: the next one, then
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
