"""Encoder and preprocessor as two reusable SavedModels, with the names that TF-Hub's BERTs have.

Source: tensorflow/models `official/nlp/tools/export_tfhub_lib.py`, and the pages of the models
`bert_en_uncased_preprocess` and `bert_en_uncased_L-12_H-768_A-12`.
"""

import pathlib

import tensorflow as tf

from keras_bert.exporting import signatures
from keras_bert.text.preprocessor import VOCABULARY_FILE

SEQUENCE_LENGTH = 128  # of `preprocess(texts)`, as there


class _Reusable(tf.train.Checkpoint):
    """What holds functions, variables and others like it, under names of our choice.

    Unlike a `tf.Module` it has no `variables` of its own, so that they can be a list that is
    saved; and what is set as `__call__` is called, before it is saved as after.
    """

    def __call__(self, *args, **kwargs):
        return self.__dict__["__call__"](*args, **kwargs)


def preprocess(preprocessor, assets, longest=SEQUENCE_LENGTH):
    """The preprocessor as a module.

    Args:
        preprocessor: a `Preprocessor`.
        assets: a folder for the vocabulary, which stays until the module is saved.
        longest: positions of what it prepares, where no other number is asked for.

    Returns:
        A `tf.Module` `m` and its signatures. `m(texts)` gives `input_word_ids`, `input_mask` and
        `input_type_ids`, int32 (batch, longest); `m.tokenize(texts)` int32 ragged
        (batch, (words), (pieces)); `m.tokenize_with_offsets(texts)` the same with first bytes and
        bytes after the last; `m.bert_pack_inputs([a] or [a, b], seq_length)` the three tensors of
        ragged ids of rank 2 or 3; `m.tokenize.get_special_tokens_dict()` int32 scalars.

    Example:

    >>> import tempfile
    >>> from keras_bert.text.preprocessor import Preprocessor
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     module, _ = preprocess(Preprocessor(pieces), folder)
    >>> module.tokenize(tf.constant(["good good", ""])).to_list()
    [[[5], [5]], []]
    """
    texts = tf.TensorSpec([None], tf.string, name="inputs")

    def call(inputs):
        ids = preprocessor.tokenizer.tokenize(inputs)
        return preprocessor.pack(ids, sequence_length=longest, max_sequence_length=longest)

    def tokenize(inputs):
        return _by_word(preprocessor.tokenizer.tokenize_with_offsets(inputs))[0]

    def tokenize_with_offsets(inputs):
        return _by_word(preprocessor.tokenizer.tokenize_with_offsets(inputs))

    def pack(inputs, seq_length=longest):
        # Of rank 3 the words are of no interest any more.
        flat = [item.merge_dims(1, -1) if item.ragged_rank > 1 else item for item in inputs]
        least = len(flat) + 1
        message = f"seq_length must be at least {least}, for [CLS] and each [SEP]; received"
        check = tf.debugging.Assert(tf.greater_equal(seq_length, least), [message, seq_length])
        with tf.control_dependencies([check]):
            flat = [tf.identity(item) for item in flat]
            return preprocessor.pack(*flat, sequence_length=seq_length, max_sequence_length=longest)

    module = _Reusable()
    module.vocab_file = tf.saved_model.Asset(_write_vocabulary(preprocessor, assets))
    inputs = tf.function(call, input_signature=[texts], autograph=False)
    module.__call__ = inputs  # type: ignore[method-assign]
    module.tokenize = _Reusable()
    module.tokenize.__call__ = tf.function(tokenize, input_signature=[texts], autograph=False)
    module.tokenize.get_special_tokens_dict = tf.function(
        lambda: _special_tokens(preprocessor), input_signature=[], autograph=False
    )
    module.tokenize_with_offsets = tf.function(
        tokenize_with_offsets, input_signature=[texts], autograph=False
    )
    module.bert_pack_inputs = tf.function(pack, autograph=False)
    for segments in (1, 2):
        for rank in (2, 3):
            ids = [tf.RaggedTensorSpec([None] * rank, tf.int32) for _ in range(segments)]
            of_any_length = [
                tf.TensorSpec([], dtype, name="seq_length") for dtype in (tf.int32, tf.int64)
            ]
            for length in (*of_any_length, longest):
                module.bert_pack_inputs.get_concrete_function(ids, seq_length=length)
    return module, {"serving_default": inputs}


def encoder(encoder, assets, masked_lm=None):
    """The encoder as a module that can be trained.

    Args:
        encoder: a `BertEncoder`.
        assets: a folder for the vocabulary, which stays until the module is saved.
        masked_lm: the `MaskedLMHead` that is tied to the encoder, or `None`.

    Returns:
        A `tf.Module` `m` and its signatures. `m(inputs, training=False)` takes the dict of the
        three int32 tensors (batch, seq) to `pooled_output`, `sequence_output`,
        `encoder_outputs`, a list, and `default`, which is the pooled output;
        `m.variables`, `m.trainable_variables` and `m.regularization_losses` are lists. With
        `masked_lm`, `m.mlm` takes `masked_lm_positions` too and adds `mlm_logits`.

    Example:

    >>> import tempfile
    >>> from keras_bert import BertEncoder
    >>> small = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                     num_attention_heads=2, intermediate_size=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     module, _ = encoder(small, folder)
    >>> ids = tf.constant([[1, 0, 1]])
    >>> sorted(module(dict.fromkeys(small.input, ids)))
    ['default', 'encoder_outputs', 'pooled_output', 'sequence_output']
    """

    def encode(inputs, training):
        outputs = encoder({key: inputs[key] for key in encoder.input}, training=training)
        return {**outputs, "default": outputs["pooled_output"]}

    def fill(inputs, training):
        outputs = encode(inputs, training)
        logits = masked_lm(outputs["sequence_output"], inputs["masked_lm_positions"])
        return {**outputs, "mlm_logits": tf.cast(logits, tf.float32)}

    module = _trainable(encode, encoder.input, encoder)
    if encoder.preprocessor is not None:
        module.vocab_file = tf.saved_model.Asset(_write_vocabulary(encoder.preprocessor, assets))
        module.do_lower_case = tf.Variable(
            encoder.preprocessor.lowercase, trainable=False, name="do_lower_case"
        )
    if masked_lm is not None:
        module.mlm = _trainable(fill, [*encoder.input, "masked_lm_positions"], encoder, masked_lm)

    def serve(input_word_ids, input_mask, input_type_ids):
        outputs = encoder(
            {
                "input_word_ids": input_word_ids,
                "input_mask": input_mask,
                "input_type_ids": input_type_ids,
            },
            training=False,
        )
        return {key: outputs[key] for key in ("pooled_output", "sequence_output")}

    signature = [tf.TensorSpec([None, None], tf.int32, name=key) for key in encoder.input]
    serving = tf.function(serve, input_signature=signature, autograph=False)
    module.serving_default = serving
    return module, {"serving_default": serving}


def _trainable(call, keys, *models):
    """A module with what `hub.KerasLayer` looks for.

    Args:
        call: `call(inputs, training)`, to a dict of tensors.
        keys: of the inputs, each int32 (batch, seq).
        models: what holds its variables; the later ones add theirs.
    """
    specs = {key: tf.TensorSpec([None, None], tf.int32, name=key) for key in keys}
    module = _Reusable()
    function = tf.function(lambda inputs, training=False: call(inputs, training), autograph=False)
    for training in (True, False):
        function.get_concrete_function(specs, training=training)
    module.__call__ = function  # type: ignore[method-assign]
    # `weights`, not `variables`: the seeds of dropout are nobody's to train.
    module.variables = [weight.value for model in models for weight in model.weights]
    module.trainable_variables = module.variables
    module.regularization_losses = []
    module.seeds = [v.value for model in models for v in model.non_trainable_variables]
    return module


def _by_word(tokens):
    """Ragged (batch, (words), (pieces)) of ids, starts and limits, int32.

    Args:
        tokens: from `WordPieceTokenizer.tokenize_with_offsets`.
    """
    ids, words, starts, limits = tokens
    first = signatures.first_pieces(ids, words)
    row_of_word = tf.gather(ids.value_rowids(), first)

    def nest(values):
        by_word = tf.RaggedTensor.from_row_starts(tf.cast(values, tf.int32), first, validate=False)
        return tf.RaggedTensor.from_value_rowids(by_word, row_of_word, ids.nrows(), validate=False)

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
