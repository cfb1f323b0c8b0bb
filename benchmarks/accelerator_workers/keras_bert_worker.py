"""The part of keras_bert in `accelerator.py`: a process that answers its requests, on JAX."""

import itertools
import os
import time

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import made_up_data
import numpy as np
import protocol

import keras_bert
from keras_bert import heads, optimizers
from keras_bert.layers import dropout as dropout_layer
from keras_bert.pretraining import losses
from keras_bert.training import engine, flops


def random_bits_of_jax(shape, seed):
    """Return random bits of JAX's default generator, threefry."""
    return jax.random.bits(jax.random.wrap_key_data(seed, impl="threefry2x32"), shape, "uint32")


def random_bits_of_hardware(shape, seed):
    """Return random bits of the generator that XLA provides for the device."""
    key = jax.numpy.concatenate([seed, seed])
    return jax.lax.rng_bit_generator(key, shape, "uint32")[1]


RANDOM_BITS = {"threefry": random_bits_of_jax, "rbg": random_bits_of_hardware}


def new_encoder(config, **options):
    vocabulary = made_up_data.vocabulary(config["vocab_size"])
    preprocessor = keras_bert.Preprocessor(vocabulary)
    return keras_bert.BertEncoder(**config, preprocessor=preprocessor, **options)


def wait_for_device():
    """Start the device, whose start is no part of a measurement."""
    jax.block_until_ready(jax.numpy.ones((8, 8)) @ jax.numpy.ones((8, 8)))


def peak_memory():
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


class Pretraining:
    """Steps of `fit`, with the model, loss and optimizer of `keras_bert.pretrain`.

    `random_bits` is a key of `RANDOM_BITS`, or `None` for the bits that keras_bert uses.
    """

    def __init__(self, config, rows, length, steps, random_bits=None):
        if random_bits is not None:
            dropout_layer.random_bits = RANDOM_BITS[random_bits]
        encoder = keras_bert.BertEncoder(**config, dtype="mixed_bfloat16")
        self.model = heads.pretraining(encoder)
        optimizer = optimizers.adamw(1e-4, total_steps=10**6, warmup_steps=10**4)
        losses.compile_model(self.model, optimizer)
        batch = made_up_data.pretraining_batch(rows, length, config["vocab_size"])
        self.batch = self._for_fit(batch)
        self.shape = (rows, length)
        self.steps = steps
        predictions = batch["positions"].shape[1]
        self.facts = {
            "operations": rows * flops.of_sequence(encoder.bert_config, length, predictions),
            "peak": flops.peak(),
        }
        self._take(2)  # compiles

    def _for_fit(self, batch):
        inputs = {
            "input_word_ids": batch["ids"],
            "input_mask": np.ones_like(batch["ids"]),
            "input_type_ids": np.zeros_like(batch["ids"]),
            "masked_lm_positions": batch["positions"],
        }
        targets = {"masked_lm": batch["targets"], "next_sentence": batch["next_sentence"]}
        weights = {name: np.ones(target.shape, "float32") for name, target in targets.items()}
        return inputs, targets, weights

    def _take(self, steps):
        """Take some steps, and return the mean loss."""
        data = engine.FitData(
            lambda: itertools.repeat(self.batch, steps), self.batch, lambda array: array.shape
        )
        engine.fit(self.model, data, [], shape=self.shape, steps=steps)
        return self.model.history.history["loss"][0]

    def run(self):
        start = time.perf_counter()
        loss = self._take(self.steps)
        return {"seconds": (time.perf_counter() - start) / self.steps, "loss": loss}


class EpochEnds(keras.callbacks.Callback):
    """Records the time at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.times = []

    def on_epoch_end(self, epoch, logs=None):
        float(logs["loss"])  # waits for the device
        self.times.append(time.perf_counter())


class Training:
    """Fine-tuning of a classifier or an embedder with `keras_bert.finetune`.

    `data` is `"sentences"` or `"pairs"`.
    """

    def __init__(self, config, data, pooling, rows, epochs, batch_size, max_length):
        self.encoder = new_encoder(config, pooling=pooling, dtype="mixed_bfloat16")
        self.options = {"epochs": epochs, "batch_size": batch_size, "max_length": max_length}
        if data == "pairs":
            columns = made_up_data.pairs(rows, config["vocab_size"])
            self.train = keras_bert.EmbeddingExamples(list(zip(*columns, strict=True)))
        else:
            sentences, labels = made_up_data.labeled_sentences(rows, config["vocab_size"])
            self.train = keras_bert.Examples(sentences, labels=[str(label) for label in labels])
            # The default for few texts, as in --tiny, is training by contrast, unlike the peer.
            self.options["contrastive"] = False
        self.facts = {}
        wait_for_device()

    def run(self):
        ends = EpochEnds()
        start = time.perf_counter()
        _, metrics = keras_bert.finetune(
            self.encoder, self.train, callbacks=[ends], show_progress=False, **self.options
        )
        seconds = time.perf_counter() - start
        steady = (ends.times[-1] - ends.times[0]) / (len(ends.times) - 1)
        return {"seconds": seconds, "epoch_seconds": steady, "loss": metrics["train_loss"]}


class Encoding:
    """Embeddings of texts with `keras_bert.pipeline`. `counts` has a number for each kind."""

    def __init__(self, config, counts):
        encoder = new_encoder(config, pooling="mean")
        self.texts = {
            kind: made_up_data.texts(kind, count, config["vocab_size"])
            for kind, count in counts.items()
        }
        self.pipeline = keras_bert.pipeline(encoder, precision="bfloat16")
        self.facts = {}
        wait_for_device()

    def run(self, kind, count, batch_size):
        """Embed the first texts of a kind. `batch_size` `None` is the default."""
        options = {} if batch_size is None else {"batch_size": batch_size}
        start = time.perf_counter()
        vectors = self.pipeline.encode(self.texts[kind][:count], normalize=True, **options)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "texts": len(vectors)}


if __name__ == "__main__":
    jobs = {"pretraining": Pretraining, "training": Training, "encoding": Encoding}
    keras.utils.set_random_seed(0)
    protocol.serve(jobs, peak_memory)
