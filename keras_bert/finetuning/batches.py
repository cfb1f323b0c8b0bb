"""Batches of like lengths, so that little is computed on padding."""

import numpy as np
import tensorflow as tf

from keras_bert.text.accelerator import tokenize_function

# With compiled steps each length costs a compilation, so there is a handful of them.
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_POOL = 50  # batches that are sorted by length together: enough to save padding, still random
_CHUNK = 4096  # texts tokenized at once


class TokenizedTexts:
    """Texts as ids, tokenized once.

    Args:
        preprocessor: the `Preprocessor` of the encoder.
        examples: `Examples`.
        max_length: positions of the longest sequence; what is longer is cut.

    Attributes:
        lengths: positions each sequence takes, specials included, at most `max_length`;
            int (n,).
    """

    def __init__(self, preprocessor, examples, max_length):
        self.preprocessor = preprocessor
        self.max_length = max_length
        tokenize = tokenize_function(preprocessor.tokenizer)
        columns = [examples.texts]
        if examples.text_pairs is not None:
            columns.append(examples.text_pairs)
        self._ids = [_tokenize_in_chunks(tokenize, texts) for texts in columns]
        total = sum(ids.row_lengths().numpy() for ids in self._ids) + 1 + len(self._ids)
        self.lengths = np.minimum(total, max_length)

    def __len__(self):
        return len(self.lengths)

    def inputs(self, rows, length):
        """The encoder's inputs for some texts.

        Args:
            rows: which texts, int (batch,).
            length: positions of the result.

        Returns:
            A dict of three int32 arrays (batch, length).
        """
        packed = self.preprocessor.pack(
            *(tf.gather(ids, rows) for ids in self._ids),
            sequence_length=length,
            max_sequence_length=self.max_length,
        )
        return {key: value.numpy() for key, value in packed.items()}


def _tokenize_in_chunks(tokenize, texts):
    texts = [text.encode("utf-8", "ignore") for text in texts]
    parts = [
        tokenize(tf.constant(texts[start : start + _CHUNK]))
        for start in range(0, len(texts), _CHUNK)
    ]
    return tf.concat(parts, axis=0)


class Batches:
    """One epoch of batches, each as long as its longest text.

    Args:
        texts: `TokenizedTexts`.
        targets: int (n,), or `None` for prediction.
        batch_size: texts a batch.
        seed: of the order; `None`: longest first, for prediction. A pair such as
            (seed, epoch) gives each epoch an order of its own.
        fixed_lengths: whether a batch is padded to one of `LENGTHS` and the last batch filled
            up with rows of weight 0, so that a compiled step sees few shapes.
    """

    def __init__(self, texts, targets, batch_size, seed=None, fixed_lengths=False):
        self._texts = texts
        self._targets = targets
        self._batch_size = batch_size
        self._fixed_lengths = fixed_lengths
        self.batches = _plan(texts.lengths, batch_size, seed)

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        rows = self.batches[index]
        length = int(self._texts.lengths[rows].max())
        missing = 0
        if self._fixed_lengths:
            length = next((size for size in LENGTHS if size >= length), length)
            length = min(length, self._texts.max_length)
            missing = self._batch_size - len(rows)
            rows = np.concatenate([rows, np.repeat(rows[:1], missing)])
        inputs = self._texts.inputs(rows, length)
        if self._targets is None:
            return (inputs,)
        weights = np.ones(len(rows), np.float32)
        weights[len(rows) - missing :] = 0
        return inputs, self._targets[rows], weights

    def dataset(self):
        """Returns the batches as a `tf.data.Dataset`, prepared while the model computes."""
        # Keras would take the shapes from the first batches, and lengths differ.
        row = tf.TensorSpec([None, None], tf.int32)
        signature = ({key: row for key in ("input_word_ids", "input_mask", "input_type_ids")},)
        if self._targets is not None:
            signature += (tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.float32))
        dataset = tf.data.Dataset.from_generator(
            lambda: (self[index] for index in range(len(self))), output_signature=signature
        )
        return dataset.apply(tf.data.experimental.assert_cardinality(len(self))).prefetch(2)


def _plan(lengths, batch_size, seed):
    """Which rows make up each batch: a list of int arrays."""
    if seed is None:
        order = np.argsort(-lengths, kind="stable")
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), _POOL * batch_size):
        pool = order[start : start + _POOL * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[first : first + batch_size] for first in range(0, len(pool), batch_size)]
    return [batches[index] for index in generator.permutation(len(batches))]
