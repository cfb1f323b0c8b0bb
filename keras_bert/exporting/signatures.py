"""Each head's answers to strings, as TensorFlow functions: what `export` writes as signatures.

A function here takes the model, its `TaskOutput`, its preprocessor and the length at which
sequences are cut, and returns

    texts   strings -> dict of answers
    specs   the `tf.TensorSpec`s of those strings
    ids     the model's own inputs, a dict -> dict of answers

All answers are dense, since a signature cannot give ragged tensors: "" and 0 fill up short rows.
Lengths follow the longest text of a batch. Long texts of a tagger and long contexts of questions
go through in overlapping windows.
"""

import tensorflow as tf

MASK = "[MASK]"
_TOP = 5  # candidates for each blank
_MAX_ANSWER = 30  # pieces, as run_squad.py
_MAX_QUESTION = 64
_STRIDE = 128
_CHUNK = 16  # windows that run at once: it bounds the memory that a very long text takes
_LOGITS = 2**26  # over the vocabulary, at once: 256 MB
_NEVER = -1e30


def classifier(model, output, preprocessor, limit):
    """`label`, `score`, `probabilities`; of label sets `probabilities` and `chosen`."""
    labels = tf.constant(output.labels)

    def ids(inputs):
        logits = model(inputs, training=False)  # (batch, classes)
        if output.multi_label:
            probabilities = tf.sigmoid(logits)
            return {"probabilities": probabilities, "chosen": probabilities >= 0.5}
        probabilities = tf.nn.softmax(logits)
        return {
            "label": tf.gather(labels, tf.argmax(probabilities, axis=-1)),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }

    return _from_texts(output, preprocessor, limit, ids)


def regressor(model, output, preprocessor, limit):
    """`score`, a number for each text."""
    return _from_texts(
        output, preprocessor, limit, lambda inputs: {"score": model(inputs, training=False)[:, 0]}
    )


def embedder(model, output, preprocessor, limit):
    """`embedding`, a vector for each text."""
    return _from_texts(
        output, preprocessor, limit, lambda inputs: {"embedding": model(inputs, training=False)}
    )


def multiple_choice(model, output, preprocessor, limit):
    """`text` and `choices` (batch, choices) to `choice`, from 0, and `probabilities`."""

    def ids(inputs):
        return choose(model(inputs, training=False))

    def choose(logits):
        probabilities = tf.nn.softmax(logits)  # (batch, choices)
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"choice": choice, "probabilities": probabilities}

    def texts(text, choices):
        batch, count = tf.unstack(tf.shape(choices))
        tokenize = preprocessor.tokenizer.tokenize
        pieces = tokenize(text)

        def score(chunk):
            packed = preprocessor.pack(
                tf.gather(pieces, chunk["row"]),
                tokenize(chunk["choice"]),
                sequence_length=None,
                max_sequence_length=limit,
            )
            alone = {key: value[:, None] for key, value in packed.items()}  # (chunk, 1, seq)
            return {"logits": model(alone, training=False)}  # (chunk, 1)

        # Packed in chunks, too: each choice takes a copy of its text.
        logits = _in_chunks(
            score,
            {"row": tf.repeat(tf.range(batch), count), "choice": tf.reshape(choices, [-1])},
            {"logits": tf.TensorSpec([None, 1], tf.float32)},
        )["logits"]
        return choose(tf.reshape(logits, [batch, count]))

    return texts, [_strings("text"), tf.TensorSpec([None, None], tf.string, name="choices")], ids


def tagger(model, output, preprocessor, limit):
    """`token`, `tag`, `score`, `start`, `end` (in bytes), each (batch, words); `count` of words."""
    labels = tf.constant(output.labels)
    tokenize = preprocessor.tokenizer.tokenize_with_offsets
    if output.characters:
        tokenize = preprocessor.tokenizer.tokenize_characters_with_offsets

    def ids(inputs):
        return _tags(tf.nn.softmax(model(inputs, training=False)))

    def _tags(probabilities):
        best = tf.argmax(probabilities, axis=-1)
        return {"tag": tf.gather(labels, best), "score": tf.reduce_max(probabilities, axis=-1)}

    def texts(text):
        pieces, words, starts, limits = tokenize(text)
        rows = pieces.value_rowids()
        room = tf.fill([pieces.nrows()], tf.constant(limit - 2, tf.int64))
        windows, owner, step = _windows(pieces, room, room // 2)
        packed = preprocessor.pack(windows, sequence_length=None, max_sequence_length=limit)
        logits = _in_chunks(  # (windows, seq, labels)
            lambda chunk: {"logits": model(chunk, training=False)},
            packed,
            {"logits": tf.TensorSpec(model.output.shape, tf.float32)},
        )["logits"]

        # Each piece is looked up in the window in which it has most around it.
        at = tf.range(tf.size(rows, tf.int64)) - tf.gather(pieces.row_splits, rows)
        counts = tf.math.bincount(tf.cast(owner, tf.int32), dtype=tf.int64)
        counts = counts[: tf.size(step)]
        number = tf.clip_by_value(
            (at - (limit - 2 - (limit - 2) // 2) // 2) // tf.gather(step, rows),
            0,
            tf.gather(counts, rows) - 1,
        )
        window = tf.gather(tf.cumsum(counts, exclusive=True), rows) + number
        place = at - number * tf.gather(step, rows) + 1  # behind [CLS]

        # The first piece of a word speaks for it.
        first = first_pieces(pieces, words)
        last = tf.concat([first[1:], [tf.size(rows, tf.int64)]], axis=0)[: tf.size(first)] - 1
        chosen = tf.gather(tf.stack([window, place], axis=1), first)
        answers = _tags(tf.nn.softmax(tf.gather_nd(logits, chosen)))
        start = tf.cast(tf.gather(starts.flat_values, first), tf.int32)
        end = tf.cast(tf.gather(limits.flat_values, last), tf.int32)
        row = tf.gather(rows, first)
        answers |= {
            "token": _substrings(text, row, start, end),
            "start": start,
            "end": end,
        }
        ragged = {
            name: tf.RaggedTensor.from_value_rowids(value, row, pieces.nrows(), validate=False)
            for name, value in answers.items()
        }
        count = tf.cast(ragged["start"].row_lengths(), tf.int32)
        return {**{name: value.to_tensor() for name, value in ragged.items()}, "count": count}

    return texts, [_strings("text")], ids


def span_selector(model, output, preprocessor, limit):
    """`question` and `context` to `answer`, `start` and `end` in bytes of the context, `score`.

    The best span of at most 30 pieces over all windows; the score is its probability among all
    such spans, and the empty answer where there may be none. `questions.decode` defines both.
    """
    rooms = range(limit - 3 - min(_MAX_QUESTION, (limit - 3) // 2), limit - 2)
    # Largest distance between two windows that overlap.
    max_overlap = max((room - 1) // _step(room) for room in rooms)

    def ids(inputs):
        return dict(model(inputs, training=False))

    def spans(chunk):
        """Of each window the best span, its logit, that of all spans, and that of no answer."""
        logits = model({key: chunk[key] for key in model.input}, training=False)
        start, end = logits["start_logits"], logits["end_logits"]  # (windows, seq)
        seq = tf.shape(start, tf.int64)[1]
        place = (
            tf.range(seq)[None] - chunk["offset"][:, None]
        )  # in the window's part of the context
        last = tf.range(seq)[:, None] + tf.range(tf.constant(_MAX_ANSWER, tf.int64))
        end = tf.pad(end, [[0, 0], [0, _MAX_ANSWER - 1]])
        sums = start[:, :, None] + tf.gather(end, last, axis=1)  # (windows, seq, length of a span)
        sums = tf.where(_owned_spans(place, chunk, max_overlap), sums, _NEVER)
        sums = tf.reshape(sums, [-1, seq * _MAX_ANSWER])
        return {
            "best": tf.reduce_max(sums, axis=1),
            "span": tf.argmax(sums, axis=1),
            "total": tf.reduce_logsumexp(sums, axis=1),
            "none": start[:, 0] + end[:, 0],
        }

    def texts(question, context):
        asked = preprocessor.tokenizer.tokenize(question)[:, : min(_MAX_QUESTION, (limit - 3) // 2)]
        pieces, _, starts, limits = preprocessor.tokenizer.tokenize_with_offsets(context)
        room = limit - 3 - asked.row_lengths()
        windows, owner, step = _windows(
            pieces, room, tf.minimum(tf.constant(_STRIDE, tf.int64), room // 2)
        )
        number = tf.range(tf.size(owner, tf.int64))  # of each window, among those of its question
        number -= tf.gather(
            tf.searchsorted(owner, tf.range(tf.size(room, tf.int64)), "left", tf.int64), owner
        )
        packed = preprocessor.pack(
            tf.gather(asked, owner), windows, sequence_length=None, max_sequence_length=limit
        )
        offset = tf.gather(asked.row_lengths(), owner) + 2  # behind [CLS] question [SEP]
        packed |= {"offset": offset, "size": windows.row_lengths(), "number": number}
        of_context = {"step": step, "room": room, "length": pieces.row_lengths()}
        packed |= {name: tf.gather(value, owner) for name, value in of_context.items()}
        floats, number = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int64)
        of_windows = _in_chunks(
            spans, packed, {"best": floats, "span": number, "total": floats, "none": floats}
        )

        # From the windows to the questions they belong to.
        questions = tf.size(room, tf.int64)
        of_question = tf.RaggedTensor.from_value_rowids(
            tf.range(tf.size(owner, tf.int64)), owner, questions, validate=False
        )
        values = tf.gather(of_windows["best"], of_question).to_tensor(_NEVER)
        values = tf.pad(values, [[0, 0], [0, 1]], constant_values=_NEVER)  # no questions, no window
        which = tf.argmax(values, axis=1)
        best = tf.reduce_max(values, axis=1)
        window = of_question.row_starts() + which  # (questions,)
        span = tf.gather(of_windows["span"], window)
        total = tf.gather(of_windows["total"], of_question).to_tensor(_NEVER)
        total = tf.reduce_logsumexp(total, axis=1)
        found = best > _NEVER / 2  # an empty context has no span at all
        if output.no_answer:
            none = tf.gather(of_windows["none"], of_question).to_tensor(-_NEVER)
            none = tf.reduce_min(none, axis=1)
            total = tf.reduce_logsumexp(tf.stack([total, none]), axis=0)
            found &= best >= none
            best = tf.where(found, best, none)
        score = tf.where(found | output.no_answer, tf.exp(best - total), 0.0)

        first = pieces.row_starts() + which * step - tf.gather(offset, window)
        first_piece = tf.where(found, first + span // _MAX_ANSWER, 0)
        last_piece = tf.where(found, first_piece + span % _MAX_ANSWER, 0)
        # One more, so that there is something to look up where no context has a piece.
        starts = tf.concat([starts.flat_values, [0]], axis=0)
        limits = tf.concat([limits.flat_values, [0]], axis=0)
        begin = tf.where(found, tf.cast(tf.gather(starts, first_piece), tf.int32), 0)
        limit_byte = tf.where(found, tf.cast(tf.gather(limits, last_piece), tf.int32), 0)
        return {
            "answer": tf.strings.substr(context, begin, limit_byte - begin),
            "start": begin,
            "end": limit_byte,
            "score": score,
        }

    return texts, [_strings("question"), _strings("context")], ids


def _step(room):
    """Pieces between windows, for questions whose windows hold `room` pieces."""
    return max(1, min(_STRIDE, room // 2))


def _owned_spans(place, windows, max_overlap):
    """Tell which spans count in a window.

    A span that several windows hold counts where its first piece has the most context on its
    shorter side; see `questions.decode`.

    Args:
        place: int64 (windows, seq): of each position, the piece in the window's part of the
            context; negative before it.
        windows: dict of int64 (windows,): `size`, pieces of the context in the window; `number`,
            0 for the first window of its question; and of its question `step`, pieces between
            windows; `room`, pieces a window holds; and `length`, pieces of the context.
        max_overlap: largest distance between two windows that overlap.

    Returns:
        bool (windows, seq, length of the span less 1).
    """
    more = tf.range(tf.constant(_MAX_ANSWER, tf.int64))
    windows = {name: value[:, None] for name, value in windows.items() if value.shape.rank == 1}

    def context(place, size):
        return 100 * tf.minimum(place, size - 1 - place) + size

    def holds(place, size):
        return (place >= 0)[:, :, None] & (more <= (size - 1 - place)[:, :, None])

    mine = context(place, windows["size"])
    counts = holds(place, windows["size"])
    for distance in (*range(-max_overlap, 0), *range(1, max_overlap + 1)):
        skipped = (windows["number"] + distance) * windows["step"]  # pieces before that window
        size = tf.minimum(windows["room"], windows["length"] - skipped)
        there = place - distance * windows["step"]
        # A window exists if the one before it does not reach the end of the context.
        exists = (skipped >= 0) & (
            (skipped == 0) | (windows["length"] - skipped + windows["step"] > windows["room"])
        )
        theirs = context(there, size)
        is_better = theirs > mine if distance > 0 else theirs >= mine
        counts &= ~((exists & is_better)[:, :, None] & holds(there, size))
    return counts


def masked_lm(model, output, preprocessor, limit):
    """`text` with [MASK] to `candidates` and `scores`, each (batch, blanks, 5)."""
    if MASK not in preprocessor.vocabulary:
        raise ValueError(
            f"to fill in blanks needs {MASK} in the vocabulary; received one of "
            f"{len(preprocessor.vocabulary)} pieces without it"
        )
    vocabulary = tf.constant(preprocessor.vocabulary)
    mask = preprocessor.tokenizer.token_id(MASK)
    top = min(_TOP, len(preprocessor.vocabulary))
    most = max(1, _LOGITS // model.output_shape[-1])  # positions at once

    def ids(inputs):
        # The head looks positions up among those of all rows: one too far would be another's.
        positions = inputs["masked_lm_positions"]
        inside = (positions >= 0) & (positions < tf.shape(inputs["input_word_ids"])[1])
        message = "masked_lm_positions must lie within the row of input_word_ids"
        # A small request may ask for an answer of many gigabytes.
        too_many = f"masked_lm_positions must be at most {most} in a request"
        checks = [
            tf.debugging.Assert(tf.reduce_all(inside), [message]),
            tf.debugging.Assert(tf.size(positions) <= most, [too_many]),
        ]
        with tf.control_dependencies(checks):
            return {"logits": model(inputs, training=False)}

    def fill(inputs):
        logits = model(inputs, training=False)
        probabilities = tf.nn.softmax(logits[:, :, : len(preprocessor.vocabulary)])
        scores, best = tf.math.top_k(probabilities, top)
        return {"scores": scores, "best": best}

    def texts(text):
        parts = tf.strings.split(text, MASK)  # (batch, (parts))
        pieces = preprocessor.tokenizer.tokenize(parts.flat_values)
        blanks = tf.fill([pieces.nrows(), 1], mask)
        pieces = parts.with_flat_values(tf.concat([pieces, blanks], axis=1)).merge_dims(1, 2)
        pieces = pieces[:, :-1][:, : limit - 2]  # no blank behind the last part
        packed = preprocessor.pack(pieces, sequence_length=None, max_sequence_length=limit)
        is_blank = tf.equal(pieces, mask)
        places = tf.ragged.range(pieces.row_lengths()) + 1  # behind [CLS]
        places = tf.ragged.boolean_mask(places, is_blank)  # (batch, (blanks))
        positions = tf.cast(places.to_tensor(), tf.int32)
        filled = _in_chunks(
            fill,
            {**packed, "masked_lm_positions": positions},
            {
                "scores": tf.TensorSpec([None, None, top], tf.float32),
                "best": tf.TensorSpec([None, None, top], tf.int32),
            },
            chunk=tf.maximum(most // tf.maximum(tf.shape(positions)[1], 1), 1),
        )
        real = (positions > 0)[:, :, None]
        return {
            "candidates": tf.where(real, tf.gather(vocabulary, filled["best"]), ""),
            "scores": tf.where(real, filled["scores"], 0.0),
        }

    return texts, [_strings("text")], ids


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


def first_pieces(pieces, words):
    """Where words begin.

    Args:
        pieces, words: ids, and the index of each one's word in its text, `tf.RaggedTensor`s
            (batch, pieces) from `WordPieceTokenizer.tokenize_with_offsets`.

    Returns:
        int64 (words of the batch,): the place of each word's first piece among all pieces.

    Example:

    >>> words = tf.ragged.constant([[0, 0, 1], [], [0]])
    >>> first_pieces(words, words).numpy().tolist()
    [0, 2, 3]
    """
    rows = pieces.value_rowids()
    key = tf.stack([rows, tf.cast(words.flat_values, tf.int64)], axis=1)
    changed = tf.reduce_any(tf.not_equal(key[1:], key[:-1]), axis=1)
    is_first = tf.concat([tf.ones([tf.minimum(tf.size(rows), 1)], tf.bool), changed], axis=0)
    return tf.where(is_first)[:, 0]


def checked(texts, specs):
    """A function of strings that fails where these are not as its signature says.

    A server hands on whatever shape it receives, and what is of one text alone would be answered
    for some and not for others.

    Args:
        texts: from a function above.
        specs: its `tf.TensorSpec`s.

    Returns:
        The function; a wrong rank, or inputs of different batches, raise
        `tf.errors.InvalidArgumentError` when the graph runs.

    Example:

    >>> specs = [_strings("a"), _strings("b")]
    >>> call = tf.function(checked(lambda a, b: a + b, specs), input_signature=specs)
    >>> call(tf.constant(["x"]), tf.constant(["y"])).numpy().tolist()
    [b'xy']
    """
    names = " and ".join(spec.name for spec in specs)

    def call(*values):
        values = [
            tf.ensure_shape(value, spec.shape) for value, spec in zip(values, specs, strict=True)
        ]
        rows = [tf.shape(value)[0] for value in values]
        message = f"{names} must have one first dimension; received"
        checks = [
            tf.debugging.Assert(tf.equal(rows[0], other), [message, rows]) for other in rows[1:]
        ]
        with tf.control_dependencies(checks):
            return texts(*map(tf.identity, values))

    return call


def _strings(name):
    return tf.TensorSpec([None], tf.string, name=name)


def _from_texts(output, preprocessor, limit, ids):
    """The three parts for a head that answers once for a text, or for a pair."""

    def texts(*items):
        pieces = [preprocessor.tokenizer.tokenize(item) for item in items]
        return ids(preprocessor.pack(*pieces, sequence_length=None, max_sequence_length=limit))

    names = ("text", "text_pair") if output.pairs else ("text",)
    return texts, [_strings(name) for name in names], ids


def _windows(pieces, room, step):
    """Cuts rows into windows that overlap.

    Args:
        pieces: a `tf.RaggedTensor` (rows, pieces).
        room: pieces a window holds, int64 (rows,).
        step: pieces from one window to the next, int64 (rows,).

    Returns:
        The windows, a `tf.RaggedTensor` (windows, pieces), at least one for each row; int64
        (windows,), the row of each; and the step of each row, at least 1.
    """
    step = tf.maximum(step, 1)
    length = pieces.row_lengths()
    counts = tf.maximum(length - room + step - 1, 0) // step + 1
    owner = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    number = tf.ragged.range(counts).flat_values
    start = number * tf.gather(step, owner)
    size = tf.minimum(tf.gather(room, owner), tf.gather(length, owner) - start)
    begin = tf.gather(pieces.row_starts(), owner) + start
    return tf.gather(pieces.flat_values, tf.ragged.range(begin, begin + size)), owner, step


def _substrings(texts, row, start, end):
    """Bytes `start` to `end` of the text of each row; a copy of the text for each would be many."""
    parts = tf.strings.bytes_split(texts)
    begin = tf.gather(parts.row_starts(), row) + tf.cast(start, tf.int64)
    places = tf.ragged.range(begin, begin + tf.cast(end - start, tf.int64))
    return tf.strings.reduce_join(tf.gather(parts.flat_values, places), axis=1)


def _in_chunks(function, inputs, outputs, chunk=None):
    """Runs a function on rows, some of them at a time.

    Args:
        function: dict of tensors (rows, ...) to dict of tensors (rows, ...).
        inputs: the first.
        outputs: `tf.TensorSpec`s of the second.
        chunk: rows at a time; default: `_CHUNK`.

    Returns:
        The second, for all rows.
    """
    chunk = _CHUNK if chunk is None else chunk
    rows = tf.shape(next(iter(inputs.values())))[0]
    count = tf.maximum((rows + chunk - 1) // chunk, 1)

    def step(number, arrays):
        begin = number * chunk
        results = function({key: value[begin : begin + chunk] for key, value in inputs.items()})
        return number + 1, {key: arrays[key].write(number, results[key]) for key in outputs}

    arrays = {
        key: tf.TensorArray(spec.dtype, count, infer_shape=False, element_shape=spec.shape)
        for key, spec in outputs.items()
    }
    _, arrays = tf.while_loop(
        lambda number, _: number < count, step, (0, arrays), parallel_iterations=1
    )
    return {key: tf.ensure_shape(arrays[key].concat(), spec.shape) for key, spec in outputs.items()}
