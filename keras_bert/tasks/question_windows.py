"""Questions and contexts as overlapping windows of token ids, with the positions of answers."""

import numpy as np
import tensorflow as tf

from keras_bert.text.fast_tokenizer import tokenize_function
from keras_bert.text.offsets import characters_of_bytes

OUTPUTS = ("start_logits", "end_logits")  # of `heads.span_selector`
MIN_LENGTH = 5  # [CLS] question [SEP] context [SEP], with one token each

_CHUNK = 1_000_000  # characters per call of the tokenizer


class EncodedQuestions:
    """Tokenized questions and contexts in windows, for `data.batching.Batches`.

    A window is [CLS] question [SEP] part of the context [SEP]. Each distinct context is tokenized
    once. `stride` and `max_question_length` are as in `question_answering.encode`.

    Attributes:
        cut_questions: Number of truncated questions.
        without_tokens: Number of questions and of distinct contexts without tokens.
        cut_answers: Number of answers that no window contains. They have weight 0.
        invisible_answers: Number of answers without tokens. They have weight 0.
        lengths: Tokens of each window, int (windows,).
        question: Question of each window, int (windows,).
        part_start: First token of the context in each window, int (windows,).
        part_size: Context tokens in each window, int (windows,).
        question_size: Tokens of each question, int (questions,).
        window_splits: Question `i` has windows `window_splits[i]` to `window_splits[i + 1] - 1`;
            int (questions + 1,).
        context: Distinct context of each question, int (questions,).
        context_splits: Distinct context `i` has tokens `context_splits[i]` to
            `context_splits[i + 1] - 1` of `starts` and `ends`; int (contexts + 1,).
        starts, ends: First character and end of each token in its context, int32 (tokens,).
    """

    def __init__(self, tokenizer, examples, max_length, stride, max_question_length):
        self.max_length = max_length
        self._cls, self._sep, self._pad = map(tokenizer.token_id, ("[CLS]", "[SEP]", "[PAD]"))
        texts = list(dict.fromkeys(examples.contexts))
        index = {text: number for number, text in enumerate(texts)}
        self.context = np.array([index[text] for text in examples.contexts], int)
        self._ids, self.starts, self.ends, self.context_splits = _tokenize_contexts(
            tokenizer, texts
        )
        self._question_ids, splits = _tokenize_questions(tokenizer, examples.questions)
        self._question_start = splits[:-1]
        self.question_size = np.minimum(
            np.diff(splits), min(max_question_length, (max_length - 3) // 2)
        )
        self.cut_questions = int((np.diff(splits) > self.question_size).sum())
        self.without_tokens = int(
            (np.diff(splits) == 0).sum() + (np.diff(self.context_splits) == 0).sum()
        )

        capacity = max_length - 3 - self.question_size  # context tokens per window
        step = np.maximum(1, np.minimum(stride, capacity // 2))
        tokens = np.diff(self.context_splits)[self.context]
        windows = 1 + np.maximum(0, -(-(tokens - capacity) // step))
        self.window_splits = _splits(windows)
        self.question = np.repeat(np.arange(len(examples)), windows)
        self.part_start = _ranges(np.zeros_like(windows), windows) * step[self.question]
        self.part_size = np.minimum(
            capacity[self.question], tokens[self.question] - self.part_start
        )
        self.lengths = 3 + self.question_size[self.question] + self.part_size

        self.cut_answers = self.invisible_answers = 0
        self._targets = None if examples.answers is None else self._find_targets(examples, texts)

    def __len__(self):
        return len(self.lengths)

    def _find_targets(self, examples, texts):
        """Return the targets of each window, a dict of int32 (windows,), and its weight (windows,).

        The target is 0, the position of [CLS], if the window does not contain the answer.
        """
        first, last, lost = self._answer_tokens(examples, texts)
        question = self.question
        part_position = 2 + self.question_size[question]  # the position of the part in its window
        has_answer = first >= 0
        first, last = first[question] - self.part_start, last[question] - self.part_start
        inside = (first >= 0) & (last >= first) & (last < self.part_size)
        cut = has_answer & (np.bincount(question, inside, len(has_answer)) == 0)
        self.cut_answers = int(cut.sum())
        targets = {
            name: np.where(inside, part_position + token, 0).astype(np.int32)
            for name, token in zip(OUTPUTS, (first, last), strict=True)
        }
        return targets, (~(lost | cut)[question]).astype(np.float32)

    def _answer_tokens(self, examples, texts):
        """Return three arrays (questions,): first and last token of each answer, and if it is lost.

        The tokens are -1 without an answer. An answer is lost if the data has one, but no tokens of
        it can be found in the context.
        """
        # Training uses the first answer that occurs in the context, as in run_squad.py.
        answers = [
            next((answer for answer in answers if answer[1] >= 0), ("", -1))
            for answers in examples.answers
        ]
        start = np.array([start for _, start in answers], int)
        end = np.array([start + len(text) for text, start in answers], int)
        # Positions in the concatenation of all contexts, so that one search is enough.
        text_starts = _splits([len(text) for text in texts])[:-1]
        token_shift = np.repeat(text_starts, np.diff(self.context_splits))
        answer_shift = text_starts[self.context]
        first = np.searchsorted(self.ends + token_shift, start + answer_shift, "right")
        last = np.searchsorted(self.starts + token_shift, end + answer_shift, "left") - 1
        found = (start >= 0) & (first <= last)  # an answer of white space has no tokens
        self.invisible_answers = int(((start >= 0) & ~found).sum())
        lost = ~found & np.array([bool(answers) for answers in examples.answers], bool)
        context_start = self.context_splits[self.context]
        first, last = first - context_start, last - context_start
        return np.where(found, first, -1), np.where(found, last, -1), lost

    def batch(self, rows, length):
        """Return inputs, targets and weights of windows `rows`, padded to `length`: three dicts.

        Inputs: int32 (batch, length). Targets: positions of the first and the last token of the
        answer, int32 (batch,), 0 if not in the window. Weights: float32 (batch,), 0 if no window
        contains the answer. Targets and weights are `None` without answers.
        """
        rows = np.asarray(rows, int)
        longest = self.lengths[rows].max(initial=0)
        if length < longest:
            raise ValueError(
                f"length must be at least {longest}, the longest window; received {length}"
            )
        question = self.question[rows]
        question_size, part_size = self.question_size[question], self.part_size[rows]
        position = np.arange(length)
        context_first = 2 + question_size[:, None]
        context_end = context_first + part_size[:, None]
        in_question = (position >= 1) & (position < context_first - 1)  # (batch, length)
        in_context = (position >= context_first) & (position < context_end)

        word_ids = np.full((len(rows), length), self._pad, np.int32)
        word_ids[:, 0] = self._cls
        word_ids[in_question] = self._question_ids[
            _ranges(self._question_start[question], question_size)
        ]
        word_ids[(position == context_first - 1) | (position == context_end)] = self._sep
        part_start = self.context_splits[self.context[question]] + self.part_start[rows]
        word_ids[in_context] = self._ids[_ranges(part_start, part_size)]
        inputs = {
            "input_word_ids": word_ids,
            "input_mask": (position <= context_end).astype(np.int32),
            "input_type_ids": (in_context | (position == context_end)).astype(np.int32),
        }
        if self._targets is None:
            return inputs, None, None
        targets, weights = self._targets
        targets = {name: target[rows] for name, target in targets.items()}
        return inputs, targets, dict.fromkeys(OUTPUTS, weights[rows])


def _splits(sizes):
    """Return the start of each of several consecutive parts, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=int)])


def _ranges(starts, sizes):
    """Concatenate the ranges `start, start + 1, ..., start + size - 1`."""
    return np.repeat(starts - _splits(sizes)[:-1], sizes) + np.arange(sizes.sum())


def _chunks(texts):
    """Split a list of texts into lists of about `_CHUNK` characters."""
    first, characters = 0, 0
    for end, text in enumerate(texts, 1):
        characters += len(text)
        if characters >= _CHUNK or end == len(texts):
            yield texts[first:end]
            first, characters = end, 0


def _tokenize_questions(tokenizer, questions):
    """Return the ids, int32 (tokens,), and the splits, int (questions + 1,)."""
    tokenize = tokenize_function(tokenizer)
    ids, sizes = [np.zeros(0, np.int32)], [np.zeros(0, int)]
    for chunk in _chunks(questions):
        tokens = tokenize(tf.constant([text.encode("utf-8", "ignore") for text in chunk]))
        ids.append(tokens.flat_values.numpy())
        sizes.append(tokens.row_lengths().numpy())
    return np.concatenate(ids), _splits(np.concatenate(sizes))


def _tokenize_contexts(tokenizer, texts):
    """Return the ids, starts and ends, int32 (tokens,), and the splits, int (contexts + 1,).

    Starts and ends are indices of characters of each text.
    """
    flat = [np.zeros((3, 0), np.int32)]
    sizes = [np.zeros(0, int)]
    for chunk in _chunks(texts):
        encoded = [text.encode("utf-8", "ignore") for text in chunk]
        ids, _, starts, ends = tokenizer.tokenize_with_offsets(tf.constant(encoded))
        size = ids.row_lengths().numpy()
        # The character of each byte, in the concatenation of the chunk's texts.
        of_byte = characters_of_bytes("".join(chunk))
        first_byte = np.repeat(_splits([len(text) for text in encoded])[:-1], size)
        first_character = np.repeat(_splits([len(text) for text in chunk])[:-1], size)
        starts = of_byte[starts.flat_values.numpy() + first_byte] - first_character
        ends = of_byte[ends.flat_values.numpy() + first_byte - 1] + 1 - first_character
        flat.append(np.stack([ids.flat_values.numpy(), starts, ends]).astype(np.int32))
        sizes.append(size)
    ids, starts, ends = np.concatenate(flat, axis=1)
    return ids, starts, ends, _splits(np.concatenate(sizes))
