"""`tf.data` datasets of examples, for Keras' own training loop."""

import itertools
import warnings

import keras
import numpy as np

from keras_bert.data.batching import compiled_length
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import inference, registry
from keras_bert.tasks.classification.targets import targets_of
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.text.preprocessor import Preprocessor


def of_examples(examples, model, batch_size, shuffle, seed, pad, labels):
    """Return the dataset of `Examples.to_dataset`."""
    output = None
    preprocessor = model
    if isinstance(model, keras.Model):
        preprocessor, output = find_encoder(model).preprocessor, find_output(model)
    if not isinstance(preprocessor, Preprocessor):
        raise ValueError(
            "to_dataset needs a Preprocessor, or a model whose encoder has one; received "
            f"{model!r:.80}"
        )
    if output is not None and not registry.by_name(output.task).answers_texts:
        raise ValueError(f"to_dataset of Examples does not apply to the task {output.task}")
    batch_size = as_integer("batch_size", batch_size, 1)
    if pad != "batch":
        pad = as_integer('pad, unless it is "batch",', pad, 3)
        longest = find_encoder(model).bert_config["max_position_embeddings"] if output else pad
        if pad > longest:
            raise ValueError(
                f"pad must be at most {longest}, the maximum of the model; received {pad}"
            )
    if not len(examples):
        raise ValueError(f"{examples.source} contains no examples")
    if output is not None and output.pairs != (examples.text_pairs is not None):
        reads = "pairs of texts" if output.pairs else "single texts"
        other = "single texts" if output.pairs else "pairs of texts"
        raise ValueError(
            f"{model.name!r:.80} reads {reads}; {examples.source} has {other}. Give {reads}, or "
            f"train a model on {other}"
        )
    if labels is not None:
        if output is not None:
            raise ValueError(
                "the labels of the model are used; remove labels, or pass a Preprocessor"
            )
        labels = _checked_labels(labels, examples)
    targets = targets_of(examples, output, labels)
    limit = preprocessor.max_sequence_length if pad == "batch" else pad
    encoded = EncodedTexts(
        preprocessor.python_tokenizer, examples.text_columns(), limit, targets=targets
    )
    _warn(examples, encoded.truncated, limit)
    return _dataset(encoded, batch_size, shuffle, seed, pad, has_weights=False)


def of_task(data, model, batch_size, shuffle, seed, pad):
    """Return the dataset of `TaskData.to_dataset`."""
    batch_size = as_integer("batch_size", batch_size, 1)
    length = None if pad == "batch" else as_integer('pad, unless it is "batch",', pad, 3)
    encoded = inference.encode(model, data, length)
    _warn(data, encoded.truncated, encoded.max_length)
    return _dataset(encoded, batch_size, shuffle, seed, pad)


def _dataset(encoded, batch_size, shuffle, seed, pad, has_weights=True):
    """Return a dataset of the batches of encoded sequences, see `data.batching`."""
    tf = import_tensorflow("to_dataset")
    limits = range(batch_size, len(encoded), batch_size)
    in_order = np.arange(len(encoded))
    epochs = itertools.count()

    def batch(rows):
        length = pad
        if pad == "batch":
            length = int(encoded.lengths[rows].max())
            if keras.backend.backend() == "jax":
                length = compiled_length(length, encoded.max_length)
        inputs, targets, weights = encoded.batch(rows, length)
        if targets is None:
            return (inputs,)
        return (inputs, targets, weights) if has_weights else (inputs, targets)

    def batches():
        order = in_order
        if shuffle:
            order = np.random.default_rng((seed, next(epochs))).permutation(in_order)
        return map(batch, np.array_split(order, limits))

    def spec(array):
        sizes = [None] * (array.ndim - 1) if pad == "batch" else array.shape[1:]
        return tf.TensorSpec([None, *sizes], array.dtype)

    signature = keras.tree.map_structure(spec, batch(in_order[:batch_size]))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    size = tf.data.experimental.assert_cardinality(len(limits) + 1)
    return dataset.apply(size).prefetch(2)


def _warn(examples, truncated, limit):
    if truncated:
        warnings.warn(
            f"{examples.source}: {truncated} sequences were truncated to {limit} "
            "tokens. Shorten them, or split them into several examples",
            stacklevel=level_of_caller(),
        )


def _checked_labels(labels, examples):
    """Return labels as a list of distinct strings."""
    if not isinstance(labels, (list, tuple, np.ndarray)):
        raise ValueError(f"labels must be a list of names; received {labels!r:.80}")
    names = [str(label) for label in labels]
    if len(set(names)) < len(names):
        shown = printable(", ".join(names[:20]))
        raise ValueError(f"labels must not repeat a name; received {shown}")
    if examples.scores is not None:
        raise ValueError(f"{examples.source} has scores instead of labels; remove labels")
    return names
