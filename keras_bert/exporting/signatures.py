"""Signatures of exported heads, as TensorFlow functions.

Each function makes the signatures `serving_default`, which takes strings, and `ids`, which takes
the model's inputs: `input_word_ids`, `input_mask`, `input_type_ids`, int32 (batch, seq). `ids` has
the outputs of `serving_default` unless a docstring lists others. `output` is the `heads.TaskOutput`
of the model, `max_sequence_length` is in tokens, and `predict` computes the outputs of the model
from its inputs.

Signatures cannot return ragged tensors, so rows are padded with "" and 0, to the longest text of
the batch. Long texts of a tagger, long contexts of questions, and texts of a model with
`long_texts="window"` are split into overlapping windows; other texts are truncated.

A new output needs a description in `model_card.py`. If its size depends on the inputs, add it to
`server/batching.py`.
"""

import typing

import tensorflow as tf

from keras_bert.exporting import question_answering, windows

MASK = "[MASK]"

_TOP = 5  # candidates for each masked token
_MAX_LOGITS = 2**26  # maximum logits per call of a masked language model (256 MB)


class Signatures(typing.NamedTuple):
    """The signatures of a model.

    from_strings: function of strings that returns the outputs of `serving_default`, a dict
    input_signature: list of the `tf.TensorSpec`s of those strings
    from_ids: function of the dict of the model's inputs that returns the outputs of `ids`
    """

    from_strings: typing.Callable
    input_signature: list
    from_ids: typing.Callable


def classifier(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.classifier` and `heads.next_sentence`.

    Inputs of `serving_default`:
        text: string (batch,)
        text_pair: string (batch,), if the model takes pairs
    Outputs:
        label: string (batch,)
        score: float32 (batch,), probability of the label
        probabilities: float32 (batch, labels), in the order of `assets/labels.txt`
    Outputs if each text has any number of labels:
        probabilities: float32 (batch, labels)
        chosen: bool (batch, labels), True if the probability is at least 0.5
    """
    labels = tf.constant(output.labels)

    def predict_probabilities(inputs):
        logits = predict(inputs)
        return tf.sigmoid(logits) if output.multi_label else tf.nn.softmax(logits)

    def answer(probabilities):
        if output.multi_label:
            return {"probabilities": probabilities, "chosen": probabilities >= 0.5}
        return {
            "label": tf.gather(labels, tf.argmax(probabilities, axis=-1)),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }

    return _of_texts(output, preprocessor, max_sequence_length, predict_probabilities, answer)


def regressor(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.regressor`.

    Inputs of `serving_default`:
        text: string (batch,)
        text_pair: string (batch,), if the model takes pairs
    Outputs:
        score: float32 (batch,), the predicted number
    """
    return _of_texts(
        output,
        preprocessor,
        max_sequence_length,
        predict,
        answer=lambda scores: {"score": scores[:, 0]},
    )


def embedder(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.embedder`.

    Inputs of `serving_default`:
        text: string (batch,); the model's default prompt comes before it
    Outputs:
        embedding: float32 (batch, width)
    """
    return _of_texts(
        output,
        preprocessor,
        max_sequence_length,
        predict,
        answer=lambda vectors: {"embedding": vectors},
        prompt=output.prompts.get(output.default_prompt, ""),
    )


def embedder_with_prompts(predict, output, preprocessor, max_sequence_length):
    """Make the signature `with_prompt` of a model of `heads.embedder` that has prompts.

    Inputs:
        text: string (batch,)
        prompt_name: string (batch,), names of the model's prompts; "" for none
    Outputs:
        embedding: float32 (batch, width)
    """
    plain = _of_texts(
        output,
        preprocessor,
        max_sequence_length,
        predict,
        answer=lambda vectors: {"embedding": vectors},
    )
    names, texts = (
        tf.constant(["", *column]) for column in zip(*output.prompts.items(), strict=True)
    )
    message = f"prompt_name must be one of {', '.join(output.prompts)}, or empty; received"

    def from_strings(text, prompt_name):
        is_name = tf.equal(prompt_name[:, None], names)  # (batch, prompts)
        is_known = tf.reduce_all(tf.reduce_any(is_name, axis=1))
        check = tf.debugging.Assert(is_known, [message, prompt_name])
        with tf.control_dependencies([check]):
            prompt = tf.gather(texts, tf.argmax(tf.cast(is_name, tf.int32), axis=1))
        return plain.from_strings(tf.strings.join([prompt, text]))

    return from_strings, [_strings("text"), _strings("prompt_name")]


def _of_texts(output, preprocessor, max_sequence_length, predict, answer, prompt=""):
    """Return `Signatures` of a model with one answer for each text or pair of texts.

    `predict` computes float32 (batch, n) from the inputs of the model, and `answer` the outputs of
    the signature from them. If the model reads long texts in windows, their predictions are
    averaged. `prompt` is a text that comes before each text.
    """
    spec = tf.TensorSpec(output.output.shape, tf.float32)

    def rows(inputs):
        by_length = windows.map_by_length(
            lambda chunk: {"rows": predict(chunk)}, inputs, {"rows": spec}
        )
        return by_length["rows"]

    tokenize = preprocessor.tokenizer.tokenize

    def pack(*tokens):
        return preprocessor.pack(
            *tokens, sequence_length=None, max_sequence_length=max_sequence_length
        )

    def from_windows(text):
        split = windows.split_texts(tokenize(text), max_sequence_length)
        return answer(tf.math.segment_mean(rows(pack(split.tokens)), split.row))

    def from_strings(*texts):
        if prompt:
            texts = [tf.strings.join([prompt, text]) for text in texts]
        return answer(rows(pack(*map(tokenize, texts))))

    names = ("text", "text_pair") if output.pairs else ("text",)
    return Signatures(
        from_windows if output.long_texts == "window" else from_strings,
        [_strings(name) for name in names],
        lambda inputs: answer(rows(inputs)),
    )


def _strings(name):
    return tf.TensorSpec([None], tf.string, name=name)


def multiple_choice(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.multiple_choice`.

    Inputs of `serving_default`:
        text: string (batch,)
        choices: string (batch, choices)
    Inputs of `ids`:
        the model's inputs, int32 (batch, choices, seq)
    Outputs:
        choice: int32 (batch,), index of the most probable choice
        probabilities: float32 (batch, choices)
    """

    def best_choice(logits):
        probabilities = tf.nn.softmax(logits)  # (batch, choices)
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"choice": choice, "probabilities": probabilities}

    def from_ids(inputs):
        return best_choice(predict(inputs))

    def from_strings(text, choices):
        batch, count = tf.unstack(tf.shape(choices))
        tokenize = preprocessor.tokenizer.tokenize
        tokens = tokenize(text)

        def score(chunk):
            packed = preprocessor.pack(
                tf.gather(tokens, chunk["row"]),
                tokenize(chunk["choice"]),
                sequence_length=None,
                max_sequence_length=max_sequence_length,
            )
            inputs = {key: value[:, None] for key, value in packed.items()}  # (chunk, 1, seq)
            return {"logits": predict(inputs)}  # (chunk, 1)

        # Sequences are packed chunk by chunk too, because each choice needs a copy of its text.
        logits = windows.map_in_chunks(
            score,
            {"row": tf.repeat(tf.range(batch), count), "choice": tf.reshape(choices, [-1])},
            {"logits": tf.TensorSpec([None, 1], tf.float32)},
        )["logits"]
        return best_choice(tf.reshape(logits, [batch, count]))

    choices = tf.TensorSpec([None, None], tf.string, name="choices")
    return Signatures(from_strings, [_strings("text"), choices], from_ids)


def tagger(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.tagger`.

    Inputs of `serving_default`:
        text: string (batch,)
    Outputs of `serving_default`:
        token: string (batch, words), each word as written in the text
        tag: string (batch, words)
        score: float32 (batch, words), probability of the tag
        start: int32 (batch, words), index of the word's first byte
        end: int32 (batch, words), index after the word's last byte
        count: int32 (batch,), number of words
    Outputs of `ids`:
        tag: string (batch, seq)
        score: float32 (batch, seq)
    """
    labels = tf.constant(output.labels)
    tokenize = preprocessor.tokenizer.tokenize_with_offsets
    if output.characters:
        tokenize = preprocessor.tokenizer.tokenize_characters_with_offsets

    def best_tags(logits):
        probabilities = tf.nn.softmax(logits)
        best = tf.argmax(probabilities, axis=-1)
        return {"tag": tf.gather(labels, best), "score": tf.reduce_max(probabilities, axis=-1)}

    def from_strings(text):
        tokens, words, starts, limits = tokenize(text)
        first = first_tokens(tokens, words)
        row = tf.gather(tokens.value_rowids(), first)
        ends = tf.concat([first, [tf.size(words.flat_values, tf.int64)]], axis=0)[1:]
        counts = tf.RaggedTensor.from_value_rowids(
            ends - first, row, tokens.nrows(), validate=False
        )
        split = windows.split_between_words(tokens, counts, max_sequence_length - 2)
        logits = windows.map_in_chunks(
            lambda chunk: {"logits": predict(chunk)},
            preprocessor.pack(
                split.tokens, sequence_length=None, max_sequence_length=max_sequence_length
            ),
            {"logits": tf.TensorSpec(output.output.shape, tf.float32)},
        )["logits"]  # (windows, seq, labels)

        # The tag of a word is the tag of its first token. The first position is [CLS].
        positions = tf.stack([split.window, split.position + 1], axis=1)
        start = tf.cast(tf.gather(starts.flat_values, first), tf.int32)
        end = tf.cast(tf.gather(limits.flat_values, ends - 1), tf.int32)
        outputs = {
            **best_tags(tf.gather_nd(logits, positions)),
            "token": _substrings(text, row, start, end),
            "start": start,
            "end": end,
        }
        padded = {name: counts.with_values(value).to_tensor() for name, value in outputs.items()}
        return {**padded, "count": tf.cast(counts.row_lengths(), tf.int32)}

    def from_ids(inputs):
        return best_tags(predict(inputs))

    return Signatures(from_strings, [_strings("text")], from_ids)


def first_tokens(tokens, words):
    """Return the index of each word's first token in the flat values, int64 (words of the batch,).

    Token ids and the index of each token's word are ragged (batch, tokens), from
    `WordPieceTokenizer.tokenize_with_offsets`.
    """
    key = tf.stack([tokens.value_rowids(), tf.cast(words.flat_values, tf.int64)], axis=1)
    changed = tf.reduce_any(tf.not_equal(key[1:], key[:-1]), axis=1)
    is_first = tf.concat([tf.ones([tf.minimum(tf.shape(key)[0], 1)], tf.bool), changed], axis=0)
    return tf.where(is_first)[:, 0]


def _substrings(texts, row, start, end):
    """Return the bytes `start` to `end` of the text in each `row`.

    The whole text is not copied for each of them.
    """
    parts = tf.strings.bytes_split(texts)
    begin = tf.gather(parts.row_starts(), row) + tf.cast(start, tf.int64)
    indices = tf.ragged.range(begin, begin + tf.cast(end - start, tf.int64))
    return tf.strings.reduce_join(tf.gather(parts.flat_values, indices), axis=1)


def span_selector(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.span_selector`.

    Inputs of `serving_default`:
        question: string (batch,)
        context: string (batch,)
    Outputs of `serving_default`:
        answer: string (batch,), a span of the context; "" if there is no answer
        start: int32 (batch,), index of the answer's first byte in the context
        end: int32 (batch,), index after the answer's last byte
        score: float32 (batch,), probability of the answer
    Outputs of `ids`:
        start_logits: float32 (batch, seq)
        end_logits: float32 (batch, seq)
    """

    def from_strings(question, context):
        return question_answering.answer(
            predict, output.no_answer, preprocessor, max_sequence_length, question, context
        )

    def from_ids(inputs):
        return dict(predict(inputs))

    return Signatures(from_strings, [_strings("question"), _strings("context")], from_ids)


def masked_lm(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.masked_lm`.

    Inputs of `serving_default`:
        text: string (batch,), with [MASK] for each token to predict
    Outputs of `serving_default`:
        candidates: string (batch, masked tokens, 5), the most probable tokens, best first
        scores: float32 (batch, masked tokens, 5), their probabilities
    Inputs of `ids`:
        the model's inputs, with `masked_lm_positions`, int32 (batch, masked tokens)
    Outputs of `ids`:
        logits: float32 (batch, masked tokens, vocab_size)
    """
    if MASK not in preprocessor.vocabulary:
        raise ValueError(
            f"a masked language model needs {MASK} in its vocabulary; received "
            f"{len(preprocessor.vocabulary)} tokens without it. Add {MASK} to the vocabulary."
        )
    vocabulary = tf.constant(preprocessor.vocabulary)
    top = min(_TOP, len(preprocessor.vocabulary))
    max_positions = max(1, _MAX_LOGITS // output.output.shape[-1])

    def from_ids(inputs):
        with tf.control_dependencies(_check_positions(inputs, max_positions)):
            return {"logits": predict(inputs)}

    def best_tokens(inputs):
        logits = predict(inputs)
        probabilities = tf.nn.softmax(logits[:, :, : len(preprocessor.vocabulary)])
        scores, best = tf.math.top_k(probabilities, top)
        return {"scores": scores, "best": best}

    def from_strings(text):
        inputs = _pack_masked(preprocessor, max_sequence_length, text)
        positions = inputs["masked_lm_positions"]
        shape = [None, None, top]
        predicted = windows.map_in_chunks(
            best_tokens,
            inputs,
            {"scores": tf.TensorSpec(shape, tf.float32), "best": tf.TensorSpec(shape, tf.int32)},
            chunk=tf.maximum(max_positions // tf.maximum(tf.shape(positions)[1], 1), 1),
        )
        is_masked = (positions > 0)[:, :, None]
        return {
            "candidates": tf.where(is_masked, tf.gather(vocabulary, predicted["best"]), ""),
            "scores": tf.where(is_masked, predicted["scores"], 0.0),
        }

    return Signatures(from_strings, [_strings("text")], from_ids)


def _check_positions(inputs, max_positions):
    """Return assertions on `masked_lm_positions`."""
    positions = inputs["masked_lm_positions"]
    # The head gathers from all sequences of the batch, so an index that is too high would read
    # from another sequence.
    is_inside = (positions >= 0) & (positions < tf.shape(inputs["input_word_ids"])[1])
    inside = "masked_lm_positions must lie within the row of input_word_ids"
    # The logits of a small request could take many gigabytes.
    too_many = f"masked_lm_positions must be at most {max_positions} in a request"
    return [
        tf.debugging.Assert(tf.reduce_all(is_inside), [inside]),
        tf.debugging.Assert(tf.size(positions) <= max_positions, [too_many]),
    ]


def _pack_masked(preprocessor, max_sequence_length, text):
    """Return the inputs for texts with [MASK], including `masked_lm_positions`."""
    mask = preprocessor.tokenizer.token_id(MASK)
    parts = tf.strings.split(text, MASK)  # (batch, (parts))
    tokens = preprocessor.tokenizer.tokenize(parts.flat_values)
    masks = tf.fill([tokens.nrows(), 1], mask)
    tokens = parts.with_flat_values(tf.concat([tokens, masks], axis=1)).merge_dims(1, 2)
    tokens = tokens[:, :-1][:, : max_sequence_length - 2]  # no [MASK] after the last part
    packed = preprocessor.pack(
        tokens, sequence_length=None, max_sequence_length=max_sequence_length
    )
    positions = tf.ragged.range(tokens.row_lengths()) + 1  # after [CLS]
    positions = tf.ragged.boolean_mask(positions, tf.equal(tokens, mask))
    return {**packed, "masked_lm_positions": tf.cast(positions.to_tensor(), tf.int32)}


HEADS = {
    "classifier": classifier,
    "next_sentence": classifier,
    "regressor": regressor,
    "embedder": embedder,
    "multiple_choice": multiple_choice,
    "tagger": tagger,
    "span_selector": span_selector,
    "masked_lm": masked_lm,
}


def check_shapes(function, input_signature):
    """Make a function of strings check the shapes of its inputs when its graph runs.

    TensorFlow Serving accepts tensors of any shape, and some graphs would return wrong answers. A
    wrong rank, or different batch sizes, raise `tf.errors.InvalidArgumentError`.
    """
    names = " and ".join(spec.name for spec in input_signature)

    def checked(*values):
        values = [
            tf.ensure_shape(value, spec.shape)
            for value, spec in zip(values, input_signature, strict=True)
        ]
        sizes = [tf.shape(value)[0] for value in values]
        message = f"{names} must have the same first dimension; received"
        checks = [
            tf.debugging.Assert(tf.equal(sizes[0], other), [message, sizes]) for other in sizes[1:]
        ]
        with tf.control_dependencies(checks):
            return function(*map(tf.identity, values))

    return checked
