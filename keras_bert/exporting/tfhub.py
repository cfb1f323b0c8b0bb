"""Encoder and preprocessor as two reusable SavedModels, with the interface of TF-Hub's BERT models.

Source: tensorflow/models `official/nlp/tools/export_tfhub_lib.py`, and the pages of the models
`bert_en_uncased_preprocess` and `bert_en_uncased_L-12_H-768_A-12`.
"""

import pathlib

import keras
import tensorflow as tf

from keras_bert.exporting import model_comparison
from keras_bert.exporting.model_comparison import Sample
from keras_bert.exporting.saved_model_folder import SavedModelFolder, signature_sample
from keras_bert.model_structure import max_sequence_length
from keras_bert.runtime.files import check_subfolder
from keras_bert.text import windows_graph
from keras_bert.text.preprocessor import VOCABULARY_FILE

_SEQUENCE_LENGTH = 128  # of `preprocess(texts)`, as on TF-Hub


class _Reusable(tf.train.Checkpoint):
    """A trackable object with attributes of any name.

    Unlike `tf.Module`, it has no property `variables`, so a list with that name can be saved, and
    it can be called before it is saved.
    """

    def __call__(self, *args, **kwargs):
        return self.__dict__["__call__"](*args, **kwargs)


def folders(job):
    """Return the folders of the preprocessor, if there is one, and of the encoder."""
    if job.precision is not None:
        raise ValueError(
            "precision does not apply to encoders and pretraining models. Use "
            "encoder.with_options(dtype='mixed_bfloat16')"
        )
    for name in ("preprocess", "encoder"):
        check_subfolder(job.path / name)
    if job.encoder.preprocessor is None:
        return [_encoder_folder(job, assets={})]
    assets = {"vocab_file": lambda folder: _write_vocabulary(job.encoder.preprocessor, folder)}
    return [_preprocessor_folder(job, assets), _encoder_folder(job, assets)]


def _preprocessor_folder(job, assets):
    length = min(_SEQUENCE_LENGTH, max_sequence_length(job.encoder))
    module, functions = _preprocess(job.encoder.preprocessor, length)
    preprocessor = job.encoder.preprocessor.with_options(sequence_length=length)

    def sample(loaded):
        return Sample(
            inputs={"inputs": model_comparison.TEXTS},
            actual=lambda inputs: loaded(tf.constant(inputs["inputs"])),
            expected=lambda inputs: keras.tree.map_structure(
                keras.ops.convert_to_numpy, preprocessor(list(inputs["inputs"]))
            ),
            tolerance=0,
        )

    return SavedModelFolder(
        job,
        job.path / "preprocess",
        module,
        functions,
        assets,
        sample,
        description="A BERT preprocessor, from texts to ids: a reusable TF2 SavedModel.",
        max_sequence_length=length,
    )


def _encoder_folder(job, assets):
    encoder = job.encoder
    masked_lm = None if job.model is encoder else job.model.get_layer("masked_lm")
    module, functions = _encode(encoder, masked_lm)

    def compute(inputs):
        outputs = encoder(inputs, training=False)
        return {key: outputs[key] for key in ("pooled_output", "sequence_output")}

    def sample(loaded):
        ids = model_comparison.sample_ids(encoder)
        return signature_sample(loaded, ids, compute, mask=ids["input_mask"])

    return SavedModelFolder(
        job,
        job.path / "encoder",
        module,
        functions,
        assets,
        sample,
        description="A trainable BERT encoder: a reusable TF2 SavedModel.",
        hub_tag="feature-extraction",
        parameters=job.model.count_params(),
        metrics=job.metrics,
    )


def _preprocess(preprocessor, sequence_length):
    """Return the module of a preprocessor and the dict of its signatures.

    The module `m` has these functions:

    - `m(texts)` returns `input_word_ids`, `input_mask` and `input_type_ids`, int32
      (batch, sequence_length).
    - `m.tokenize(texts)` returns ids, int32 ragged (batch, (words), (tokens)).
    - `m.tokenize_with_offsets(texts)` returns ids, the index of the first byte of each token, and
      the index after its last byte.
    - `m.bert_pack_inputs([a] or [a, b], seq_length)` packs ragged ids of rank 2 or 3 into the
      three tensors.
    - `m.tokenize.get_special_tokens_dict()` returns int32 scalars, and so does
      `m.tokenize_with_offsets.get_special_tokens_dict()`.
    """
    texts = [tf.TensorSpec([None], tf.string, name="inputs")]

    def call(inputs):
        tokens = preprocessor.tokenizer.tokenize(inputs)
        return preprocessor.pack(
            tokens, sequence_length=sequence_length, max_sequence_length=sequence_length
        )

    def tokenize(inputs):
        return tokenize_with_offsets(inputs)[0]

    def tokenize_with_offsets(inputs):
        return _by_word(preprocessor.tokenizer.tokenize_with_offsets(inputs))

    module = _Reusable()
    default = tf.function(call, input_signature=texts, autograph=False)
    module.__call__ = default  # type: ignore[method-assign]
    special_tokens = tf.function(
        lambda: _special_tokens(preprocessor), input_signature=[], autograph=False
    )
    for function in (tokenize, tokenize_with_offsets):
        tokenizer = _Reusable()
        traced = tf.function(function, input_signature=texts, autograph=False)
        tokenizer.__call__ = traced  # type: ignore[method-assign]
        tokenizer.get_special_tokens_dict = special_tokens
        setattr(module, function.__name__, tokenizer)
    module.bert_pack_inputs = _pack_function(preprocessor, sequence_length)
    return module, {"serving_default": default}


def _pack_function(preprocessor, sequence_length):
    """Return `bert_pack_inputs`, traced for one or two ragged tensors of rank 2 or 3."""

    def pack(inputs, seq_length=sequence_length):
        flat = [item.merge_dims(1, -1) if item.ragged_rank > 1 else item for item in inputs]
        least = len(flat) + 1
        message = f"seq_length must be at least {least}, for [CLS] and each [SEP]; received"
        check = tf.debugging.Assert(tf.greater_equal(seq_length, least), [message, seq_length])
        with tf.control_dependencies([check]):
            flat = [tf.identity(item) for item in flat]
            return preprocessor.pack(
                *flat, sequence_length=seq_length, max_sequence_length=sequence_length
            )

    function = tf.function(pack, autograph=False)
    lengths = [tf.TensorSpec([], dtype, name="seq_length") for dtype in (tf.int32, tf.int64)]
    for segments in (1, 2):
        for rank in (2, 3):
            tokens = [tf.RaggedTensorSpec([None] * rank, tf.int32) for _ in range(segments)]
            for length in (*lengths, sequence_length):
                function.get_concrete_function(tokens, seq_length=length)
    return function


def _encode(encoder, masked_lm=None):
    """Return the trainable module of an encoder and the dict of its signatures.

    `masked_lm` is a `MaskedLMHead` that
    is tied to the encoder, or `None`. The module `m` has these attributes:

    - `m(inputs, training=False)` takes a dict of the three tensors, int32 (batch, seq). It returns
      a dict of `pooled_output`, `sequence_output`, `encoder_outputs`, a list with one tensor for
      each layer, and `default`, which is the pooled output.
    - `m.variables`, `m.trainable_variables` and `m.regularization_losses` are lists.
    - `m.mlm`, if there is a `masked_lm`, also takes `masked_lm_positions` and adds `mlm_logits`.
    """

    def encode(inputs, training):
        outputs = encoder({key: inputs[key] for key in encoder.input}, training=training)
        return {**outputs, "default": outputs["pooled_output"]}

    def predict_tokens(inputs, training):
        outputs = encode(inputs, training)
        logits = masked_lm(outputs["sequence_output"], inputs["masked_lm_positions"])
        return {**outputs, "mlm_logits": tf.cast(logits, tf.float32)}

    module = _trainable(encode, encoder.input, [encoder])
    if encoder.preprocessor is not None:
        module.do_lower_case = tf.Variable(
            encoder.preprocessor.lowercase, trainable=False, name="do_lower_case"
        )
    if masked_lm is not None:
        keys = [*encoder.input, "masked_lm_positions"]
        module.mlm = _trainable(predict_tokens, keys, [encoder, masked_lm])

    def serve(*inputs):
        outputs = encoder(dict(zip(encoder.input, inputs, strict=True)), training=False)
        return {key: outputs[key] for key in ("pooled_output", "sequence_output")}

    specs = [tf.TensorSpec([None, None], tf.int32, name=key) for key in encoder.input]
    module.serving_default = tf.function(serve, input_signature=specs, autograph=False)
    return module, {"serving_default": module.serving_default}


def _trainable(call, keys, layers):
    """Return a module with the attributes that `hub.KerasLayer` expects.

    `call(inputs, training)` takes a dict of `keys`, int32 (batch, seq); `layers` own its variables.
    """
    specs = {key: tf.TensorSpec([None, None], tf.int32, name=key) for key in keys}
    module = _Reusable()
    function = tf.function(lambda inputs, training=False: call(inputs, training), autograph=False)
    for training in (True, False):
        function.get_concrete_function(specs, training=training)
    module.__call__ = function  # type: ignore[method-assign]
    # `weights`, not `variables`, which include the seeds of dropout.
    module.variables = [weight.value for layer in layers for weight in layer.weights]
    module.trainable_variables = module.variables
    module.regularization_losses = []
    module.seeds = [v.value for layer in layers for v in layer.non_trainable_variables]
    return module


def _by_word(tokens):
    """Return ids, starts and limits, each int32 ragged (batch, (words), (tokens))."""
    ids, words, starts, limits = tokens
    first = windows_graph.first_tokens(ids, words)
    # `tf.searchsorted` rejects empty tensors. Its result has the static shape of `row_splits`.
    starts_and_end = tf.concat([first, [tf.size(ids.flat_values, tf.int64)]], axis=0)
    word_splits = tf.searchsorted(starts_and_end, ids.row_splits, out_type=tf.int64)

    def nest(values):
        by_word = tf.RaggedTensor.from_row_starts(tf.cast(values, tf.int32), first, validate=False)
        return tf.RaggedTensor.from_row_splits(by_word, word_splits, validate=False)

    return tuple(nest(item.flat_values) for item in (ids, starts, limits))


def _special_tokens(preprocessor):
    token_id = preprocessor.tokenizer.token_id
    tokens = {
        "padding_id": token_id("[PAD]"),
        "start_of_sequence_id": token_id("[CLS]"),
        "end_of_segment_id": token_id("[SEP]"),
        "vocab_size": len(preprocessor.vocabulary),
    }
    if "[MASK]" in preprocessor.vocabulary:
        tokens["mask_id"] = token_id("[MASK]")
    return {name: tf.constant(value, tf.int32) for name, value in tokens.items()}


def _write_vocabulary(preprocessor, folder):
    preprocessor.save_assets(folder)
    return str(pathlib.Path(folder, VOCABULARY_FILE))
