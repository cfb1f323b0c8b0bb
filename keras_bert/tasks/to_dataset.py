"""`tf.data` datasets of examples, for Keras' own training loop."""

import itertools
import warnings

import keras
import numpy as np

from keras_bert.data import tf_dataset
from keras_bert.data.batching import choose_lengths, compiled_length
from keras_bert.model_structure import find_encoder, find_output, max_sequence_length
from keras_bert.runtime import distribution
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import registry
from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.text import check_pairs, targets_of
from keras_bert.text.encoded_texts import EncodedTexts
from keras_bert.text.preprocessor import Preprocessor


def of_examples(examples, model, batch_size, shuffle, seed, pad, labels):
    """Return the dataset of `Examples.to_dataset`."""
    output = None
    preprocessor = model
    if isinstance(model, keras.Model):
        preprocessor = find_encoder(model).preprocessor
        output = find_output(model)
    if not isinstance(preprocessor, Preprocessor):
        raise ValueError(f"to_dataset needs a model with a Preprocessor; received {shown(model)}")
    if output is not None:
        if not registry.by_name(output.task).answers_texts:
            raise ValueError(f"to_dataset of Examples does not apply to the task {output.task}")
        if labels is not None:
            raise ValueError("the labels of the model are used; remove labels")
        check_pairs(output.pairs, examples)
    if labels is not None:
        if isinstance(labels, (str, dict, set)) or examples.scores is not None:
            raise ValueError("labels must be a list, for data with labels")
        labels = [str(label) for label in labels]
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels must be unique; received {shown(labels)}")
    length = _length(pad, model)
    longest = length or preprocessor.max_sequence_length
    columns = examples.text_columns()
    if output is not None:
        longest = max_sequence_length(find_encoder(model), length)
        prompt = prompt_of(output)
        columns = [[prompt + text for text in columns[0]], *columns[1:]]
    encoded = EncodedTexts(
        preprocessor.python_tokenizer,
        columns,
        longest,
        targets=targets_of(examples, output, labels),
    )
    return _dataset(examples, encoded, batch_size, shuffle, seed, length, has_weights=False)


def of_task(data, model, batch_size, shuffle, seed, pad):
    """Return the dataset of `TaskData.to_dataset`."""
    length = _length(pad, model)
    encoded = KerasPredictor(model).encode(data, length)
    return _dataset(data, encoded, batch_size, shuffle, seed, length)


def _length(pad, model):
    """Return the length of all sequences; `None` for that of the longest one of each batch."""
    if pad == "batch":
        return None
    if isinstance(pad, str):
        raise ValueError(f'pad must be "batch" or an integer; received {shown(pad)}')
    length = as_integer("pad", pad, 3)
    if isinstance(model, keras.Model):
        limit = find_encoder(model).bert_config["max_position_embeddings"]
        if length > limit:
            raise ValueError(
                f"pad must be at most {limit}, the maximum of the model; received {pad}"
            )
    return length


def _dataset(data, encoded, batch_size, shuffle, seed, fixed_length, has_weights=True):
    """Return a dataset of the batches of encoded sequences, see `data.batching`."""
    batch_size = as_integer("batch_size", batch_size, 1)
    if not len(data):
        raise ValueError(f"{data.source} contains no examples")
    if encoded.truncated:
        warnings.warn(
            f"{data.source}: {encoded.truncated} texts were truncated to {encoded.max_length} "
            "tokens. Shorten them, or split them into several examples",
            stacklevel=level_of_caller(),
        )
    tf = import_tensorflow("to_dataset")
    first_row_per_batch = range(0, len(encoded), batch_size)
    in_order = np.arange(len(encoded))
    share_counted = max(encoded.counted_sequences(in_order), 1) / len(encoded)
    epochs = itertools.count()  # any pass takes a number, also next(iter(dataset))

    lengths = None
    if fixed_length is None and distribution.compiles_each_shape():
        rows_per_batch = np.array_split(in_order, first_row_per_batch[1:])
        longest = [encoded.lengths[rows].max() for rows in rows_per_batch]
        # One of three programs is for the last batch, which has fewer rows.
        cost = distribution.positions_per_compilation() / batch_size
        lengths = choose_lengths(longest, cost, most=2)

    def batch(rows):
        length = fixed_length
        if length is None:
            length = int(encoded.lengths[rows].max())
        if lengths is not None:
            length = compiled_length(length, encoded.max_length, lengths)
        inputs, targets, weights = encoded.batch(rows, length)
        if targets is None:
            return (inputs,)
        if not has_weights:
            return inputs, targets
        # The loss of a row is the sum over its targets, and its mean is over the rows that count.
        # Keras' losses divide by the number of all targets, (batch,) or (batch, seq).
        per_row = keras.tree.flatten(weights)[0].size / len(rows)
        factor = np.float32(per_row / share_counted)
        return inputs, targets, keras.tree.map_structure(lambda array: array * factor, weights)

    def batches():
        order = in_order
        if shuffle:
            order = np.random.default_rng((seed, next(epochs))).permutation(in_order)
        return map(batch, np.array_split(order, first_row_per_batch[1:]))

    def spec(array):
        sizes = [None] * (array.ndim - 1) if fixed_length is None else array.shape[1:]
        return tf.TensorSpec([None, *sizes], array.dtype)

    signature = keras.tree.map_structure(spec, batch(in_order[:batch_size]))
    size = tf.data.experimental.assert_cardinality(len(first_row_per_batch))
    return tf_dataset.from_generator(batches, signature).apply(size)
