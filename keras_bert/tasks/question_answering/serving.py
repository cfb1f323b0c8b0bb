"""The signatures of question answering, and the computation of answers as TensorFlow ops.

    question, context
      -> tokens
      -> windows [CLS] question [SEP] part of the context [SEP]    `_pack_windows`
      -> the best span of each window                              `_best_spans`
      -> the best window of each question                          `_best_windows`
      -> the bytes of the answer in the context

`keras_bert.tasks.question_answering.windows.decode` computes the same answers with NumPy.
"""

import tensorflow as tf

from keras_bert.encoder import INPUTS
from keras_bert.tasks.question_answering.windows import AnswerOptions, WindowOptions
from keras_bert.tasks.text_serving import Signatures, strings
from keras_bert.text import windows_graph as windows

_MAX_ANSWER = AnswerOptions.max_answer_length

_NEVER = -1e30  # logit of an impossible span


def span_selector(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.span_selector`.

    The answer is the span of at most 30 tokens with the highest logit over all windows of the
    context. The score is its probability among all spans and, if the model can give no answer, the
    empty answer.

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
    max_question = min(WindowOptions.max_question_length, (max_sequence_length - 3) // 2)
    # Largest distance between windows that overlap; a short question leaves more context tokens.
    sizes = range(max_sequence_length - 3 - max_question, max_sequence_length - 2)
    max_distance = max((size - 1) // max(1, min(WindowOptions.stride, size // 2)) for size in sizes)

    def from_strings(question, context):
        tokens, _, starts, limits = preprocessor.tokenizer.tokenize_with_offsets(context)
        question_tokens = preprocessor.tokenizer.tokenize(question)[:, :max_question]
        size = max_sequence_length - 3 - question_tokens.row_lengths()  # of the context in a window
        stride = tf.constant(WindowOptions.stride, tf.int64)
        split = windows.split(tokens, size, tf.minimum(stride, size // 2))
        inputs = _pack_windows(
            preprocessor, max_sequence_length, question_tokens, tokens, size, split
        )

        logits = tf.TensorSpec([None], tf.float32)
        indices = tf.TensorSpec([None], tf.int64)
        spans = windows.map_in_chunks(
            lambda chunk: _best_spans(predict, chunk, max_distance),
            inputs,
            {"best": logits, "span": indices, "total": logits, "no_answer": logits},
        )
        number, window, has_answer, score = _best_windows(spans, split.counts, output.no_answer)

        # From positions in the window to bytes of the context.
        span = tf.gather(spans["span"], window)
        position = span // _MAX_ANSWER - tf.gather(inputs["offset"], window)
        first = tf.where(has_answer, tokens.row_starts() + number * split.step + position, 0)
        last = tf.where(has_answer, first + span % _MAX_ANSWER, 0)
        # The additional 0 makes index 0 valid even if no context has a token.
        starts = tf.concat([starts.flat_values, [0]], axis=0)
        limits = tf.concat([limits.flat_values, [0]], axis=0)
        start = tf.where(has_answer, tf.cast(tf.gather(starts, first), tf.int32), 0)
        end = tf.where(has_answer, tf.cast(tf.gather(limits, last), tf.int32), 0)
        text = tf.strings.substr(context, start, end - start)
        return {"answer": text, "start": start, "end": end, "score": score}

    def from_ids(inputs):
        return dict(predict(inputs))

    return Signatures(from_strings, [strings("question"), strings("context")], from_ids)


def _pack_windows(preprocessor, max_sequence_length, question_tokens, tokens, size, split):
    """Return the model's inputs (windows, seq), and int64 (windows,) for `_best_spans`.

    offset: position of the window's first context token
    size: context tokens in the window
    number: index of the window among those of its question
    step, max_size, length: of the question: tokens from one window to the next, the largest
        `size`, and the tokens of the context
    """
    packed = preprocessor.pack(
        tf.gather(question_tokens, split.row),
        split.tokens,
        sequence_length=None,
        max_sequence_length=max_sequence_length,
    )
    return packed | {
        "offset": tf.gather(question_tokens.row_lengths(), split.row) + 2,  # [CLS] and [SEP]
        "size": split.tokens.row_lengths(),
        "number": split.number,
        "step": tf.gather(split.step, split.row),
        "max_size": tf.gather(size, split.row),
        "length": tf.gather(tokens.row_lengths(), split.row),
    }


def _best_spans(predict, inputs, max_distance):
    """Return the best span of each window, tensors (windows,).

    best: logit of the best span
    span: position of its first token times `_MAX_ANSWER`, plus its length minus 1
    total: logarithm of the sum of the exponentials of all span logits
    no_answer: logit of the empty answer, at [CLS]
    """
    logits = predict({key: inputs[key] for key in INPUTS})
    start, end = logits["start_logits"], logits["end_logits"]  # (windows, seq)
    length = tf.shape(start, tf.int64)[1]
    last = tf.range(length)[:, None] + tf.range(tf.constant(_MAX_ANSWER, tf.int64))
    padded = tf.pad(end, [[0, 0], [0, _MAX_ANSWER - 1]])
    spans = start[:, :, None] + tf.gather(padded, last, axis=1)  # (windows, seq, _MAX_ANSWER)
    spans = tf.where(_has_most_context(inputs, length, max_distance), spans, _NEVER)
    spans = tf.reshape(spans, [-1, length * _MAX_ANSWER])
    return {
        "best": tf.reduce_max(spans, axis=1),
        "span": tf.argmax(spans, axis=1),
        "total": tf.reduce_logsumexp(spans, axis=1),
        "no_answer": start[:, 0] + end[:, 0],
    }


def _has_most_context(inputs, seq_length, max_distance):
    """Return the mask of the spans that count in a window, bool (windows, seq, `_MAX_ANSWER`).

    If several windows contain a span, it counts only in the window with the most context on the
    shorter side of the span's first token; the first window wins ties. Windows of a question
    overlap if their numbers differ by at most `max_distance`.
    """
    inputs = {key: value[:, None] for key, value in inputs.items() if value.shape.rank == 1}
    index = tf.range(seq_length)[None] - inputs["offset"]  # of the token in the window's context
    more = tf.range(tf.constant(_MAX_ANSWER, tf.int64))  # length of the span less 1

    def context(index, size):  # as in run_squad.py, times 100
        return 100 * tf.minimum(index, size - 1 - index) + size

    def contains_span(index, size):
        return (index >= 0)[:, :, None] & (more <= (size - 1 - index)[:, :, None])

    own_context = context(index, inputs["size"])
    mask = contains_span(index, inputs["size"])
    for distance in (*range(-max_distance, 0), *range(1, max_distance + 1)):
        first = (inputs["number"] + distance) * inputs["step"]  # token of the context
        rest = inputs["length"] - first
        size = tf.minimum(inputs["max_size"], rest)
        # A window exists unless the window before it reaches the end of the context.
        exists = (first >= 0) & ((first == 0) | (rest + inputs["step"] > inputs["max_size"]))
        other_index = index - distance * inputs["step"]
        other_context = context(other_index, size)
        is_better = other_context > own_context if distance > 0 else other_context >= own_context
        mask &= ~((exists & is_better)[:, :, None] & contains_span(other_index, size))
    return mask


def _best_windows(spans, counts, no_answer):
    """Return the best window of each question, tensors (questions,).

    They are the index of the window among those of its question, its index among all windows, True
    where the answer is not empty, and the score. `spans` is from `_best_spans`, for all windows;
    `counts` are the windows of each question, int64 (questions,).
    """
    of_question = tf.RaggedTensor.from_row_lengths(
        tf.range(tf.reduce_sum(counts)), counts, validate=False
    )
    best = tf.gather(spans["best"], of_question).to_tensor(_NEVER)
    best = tf.pad(best, [[0, 0], [0, 1]], constant_values=_NEVER)  # argmax needs a column
    number = tf.argmax(best, axis=1)
    best = tf.reduce_max(best, axis=1)
    total = tf.gather(spans["total"], of_question).to_tensor(_NEVER)
    total = tf.reduce_logsumexp(total, axis=1)
    has_answer = best > _NEVER / 2  # an empty context has no span
    if no_answer:
        empty = tf.gather(spans["no_answer"], of_question).to_tensor(-_NEVER)
        empty = tf.reduce_min(empty, axis=1)
        total = tf.reduce_logsumexp(tf.stack([total, empty]), axis=0)
        has_answer &= best >= empty
        best = tf.where(has_answer, best, empty)
    score = tf.where(has_answer | no_answer, tf.exp(best - total), 0.0)
    return number, of_question.row_starts() + number, has_answer, score
