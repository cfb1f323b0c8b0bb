"""Questions and contexts as overlapping windows of token ids, with the positions of answers."""

import dataclasses
import functools

import numpy as np
import scipy.special

from keras_bert.data.padding import pad_outputs
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown
from keras_bert.tasks.task import Options
from keras_bert.text import token_ids
from keras_bert.text.encoded_texts import Encoded
from keras_bert.text.text_windows import cut
from keras_bert.text.token_ids import splits_of

OUTPUTS = ("start_logits", "end_logits")  # of `heads.span_selector`
_NO_ANSWER = -1e30  # a logit of padding; minus infinity times 0 would be NaN
_MIN_LENGTH = 5  # [CLS] question [SEP] context [SEP], with one token each


@dataclasses.dataclass(frozen=True)
class WindowOptions(Options):
    """Options of training, in tokens, with the defaults of run_squad.py.

    stride: Tokens of the context between the starts of two windows. It is reduced so that windows
        overlap by at least half of their context.
    max_question_length: A question takes at most this, and at most half of a window.
    """

    stride: int = 128
    max_question_length: int = 64


@dataclasses.dataclass(frozen=True)
class AnswerOptions(Options):
    """Options of the answers, see `decode`. `max_answer_length` is in tokens."""

    max_answer_length: int = 30
    null_threshold: float = 0.0
    top_k: int | None = None

    def __post_init__(self):
        as_integer("max_answer_length", self.max_answer_length, 1)
        threshold = self.null_threshold
        if not isinstance(threshold, (int, float, np.number)) or np.isnan(threshold):
            raise ValueError(f"null_threshold must be a number; received {shown(threshold)}")


class EncodedQuestions(Encoded):
    """Tokenized questions and contexts in windows, for `data.batching.Batches`.

    A window is [CLS] question [SEP] part of the context [SEP].

    Args:
        examples: `Questions`.
        tokenizer: A `PythonTokenizer`.
        max_length: Maximum number of tokens of a window, at least 5.
        options: `WindowOptions`.

    Attributes:
        cut_questions: Number of truncated questions.
        without_tokens: Number of questions and of distinct contexts without tokens.
        cut_answers: Number of answers that no window contains. Their windows do not count.
        invisible_answers: Number of answers without tokens. Their windows do not count.
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

    def __init__(self, examples, tokenizer, max_length, options):
        self.max_length = as_integer("max_length", max_length, _MIN_LENGTH)
        stride = as_integer("stride", options.stride, 1)
        max_question_length = as_integer("max_question_length", options.max_question_length, 1)
        self._cls, self._sep, self._pad = tokenizer.special_ids
        texts = list(dict.fromkeys(examples.contexts))
        index_of = {text: index for index, text in enumerate(texts)}
        self.context = np.array([index_of[text] for text in examples.contexts], int)
        contexts = [tokenizer.tokenize_with_offsets(text) for text in texts]
        self._ids, self.context_splits = token_ids.from_lists([context.ids for context in contexts])
        self.starts = token_ids.from_lists([context.starts for context in contexts]).ids
        self.ends = token_ids.from_lists([context.limits for context in contexts]).ids
        self._question_ids, splits = token_ids.tokenize(tokenizer, examples.questions)
        self._question_start = splits[:-1]
        max_question_length = min(max_question_length, (max_length - 3) // 2)
        self.question_size = np.minimum(np.diff(splits), max_question_length)
        self.cut_questions = int((np.diff(splits) > self.question_size).sum())
        self.without_tokens = int(
            (np.diff(splits) == 0).sum() + (np.diff(self.context_splits) == 0).sum()
        )

        capacity = max_length - 3 - self.question_size  # context tokens per window
        step = np.maximum(1, np.minimum(stride, capacity // 2))
        tokens = np.diff(self.context_splits)[self.context]
        self.question, self.part_start, part_end = cut(tokens, capacity, step)
        self.window_splits = splits_of(np.bincount(self.question, minlength=len(examples)))
        self.part_size = part_end - self.part_start
        self.lengths = 3 + self.question_size[self.question] + self.part_size

        self._targets = None if examples.answers is None else self._find_targets(examples, texts)

    def _find_targets(self, examples, texts):
        """Return the targets of each window, a dict of int32 (windows,), and set `is_counted`.

        The target is 0, the position of [CLS], if the window does not contain the answer.
        """
        first, last, lost = self._answer_tokens(examples, texts)
        question = self.question
        part_position = 2 + self.question_size[question]  # the position of the part in its window
        has_answer = first >= 0
        first_in_part = first[question] - self.part_start  # (windows,)
        last_in_part = last[question] - self.part_start
        inside = (first_in_part >= 0) & (last_in_part >= first_in_part)
        inside &= last_in_part < self.part_size
        cut = has_answer & (np.bincount(question, inside, len(has_answer)) == 0)
        self.cut_answers = int(cut.sum())
        self.is_counted = ~(lost | cut)[question]
        return {
            name: np.where(inside, part_position + token, 0).astype(np.int32)
            for name, token in zip(OUTPUTS, (first_in_part, last_in_part), strict=True)
        }

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
        text_starts = splits_of([len(text) for text in texts])[:-1]
        token_shift = np.repeat(text_starts, np.diff(self.context_splits))
        answer_shift = text_starts[self.context]
        first = np.searchsorted(self.ends + token_shift, start + answer_shift, "right")
        last = np.searchsorted(self.starts + token_shift, end + answer_shift, "left") - 1
        has_tokens = (start >= 0) & (first <= last)  # an answer of white space has no tokens
        self.invisible_answers = int(((start >= 0) & ~has_tokens).sum())
        lost = ~has_tokens & np.array([bool(answers) for answers in examples.answers], bool)
        context_start = self.context_splits[self.context]
        first, last = first - context_start, last - context_start
        return np.where(has_tokens, first, -1), np.where(has_tokens, last, -1), lost

    def batch(self, rows, length):
        """Return inputs, targets and weights of windows `rows`, padded to `length`: three dicts.

        Inputs: int32 (batch, length). Targets: positions of the first and the last token of the
        answer, int32 (batch,), 0 if not in the window. Weights: float32 (batch,), 0 if no window
        contains the answer. Targets and weights are `None` without answers.
        """
        rows = np.asarray(rows, int)
        question = self.question[rows]
        question_size = self.question_size[question]
        part_size = self.part_size[rows]
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
        targets = {name: target[rows] for name, target in self._targets.items()}
        weights = self.is_counted[rows].astype(np.float32)
        return inputs, targets, dict.fromkeys(OUTPUTS, weights)

    def stack_outputs(self, outputs, rows, length):
        """Return the logits of some windows, (windows, length); padding is no answer."""
        return {
            name: pad_outputs(
                [output[name] for output in outputs], self.lengths[rows], length, value=_NO_ANSWER
            )
            for name in OUTPUTS
        }


def _ranges(starts, sizes):
    """Concatenate the ranges `start, start + 1, ..., start + size - 1`."""
    return np.repeat(starts - splits_of(sizes)[:-1], sizes) + np.arange(sizes.sum())


def decode(examples, encoded, outputs, no_answer, options):
    """Return a dict per question: `text`, `start`, `end` (in characters), `score` (a probability).

    `outputs` has a dict of `start_logits` and `end_logits`, (seq,), per window. With `no_answer`,
    `text` is "" if the logit of no answer exceeds that of the best span by more than the option
    `null_threshold`; it also has `span_text`, the text of the best span, and `null_difference`,
    the logit of no answer minus that of the best span. With the option `top_k`, return a list of
    that many answers per question, the most probable first.
    Source: `write_predictions` in google-research/bert `run_squad.py`.
    """
    max_answer_length = as_integer("max_answer_length", options.max_answer_length, 1)
    max_answer_length = min(max_answer_length, encoded.max_length)
    answers = []
    for question, context in enumerate(examples.contexts):
        rows = range(*encoded.window_splits[question : question + 2])
        spans, total = _best_spans(encoded, outputs, rows, max_answer_length, options.top_k or 1)
        best = spans[0] if spans else (-np.inf, None, None)  # a context without tokens
        if no_answer:
            # The logit of no answer is the lowest one of all windows.
            none = min(float(sum(outputs[row][name][0] for name in OUTPUTS)) for row in rows)
            total = np.logaddexp(total, none)
            before = sum(none - logit <= options.null_threshold for logit, _, _ in spans)
            spans.insert(before, (none, None, None))
        spans = spans or [best]
        answer_of = functools.partial(_answer, encoded, question, context, total)
        if options.top_k is not None:
            answers.append([answer_of(span) for span in spans[: options.top_k]])
            continue
        answer = answer_of(spans[0])
        if no_answer:
            answer |= {"span_text": answer_of(best)["text"], "null_difference": none - best[0]}
        answers.append(answer)
    return answers


def _answer(encoded, question, context, total, span):
    """Return a span as a dict, see `decode`. `total` is the log-sum-exp of all logits."""
    logit, first, last = span
    start = end = 0
    if first is not None:
        offset = encoded.context_splits[encoded.context[question]]
        start, end = int(encoded.starts[offset + first]), int(encoded.ends[offset + last])
    score = float(np.exp(logit - total)) if np.isfinite(logit) else 0.0
    return {"text": context[start:end], "start": start, "end": end, "score": score}


def _best_spans(encoded, outputs, rows, max_answer_length, count):
    """Return the best spans of all windows of one question, and the sum of all spans.

    A span is `(logit, first, last)`, with its first and last token of the context. The sum is the
    log-sum-exp of the logits of all spans, minus infinity if there is none.
    """
    windows = _span_windows(encoded, rows, max_answer_length)
    spans = []
    total = -np.inf
    for row in rows:
        first = encoded.part_start[row]
        size = encoded.part_size[row]
        if not size:
            continue
        begin = 2 + encoded.question_size[encoded.question[row]]
        start, end = (
            np.asarray(outputs[row][name], np.float64)[begin : begin + size] for name in OUTPUTS
        )
        # Row i holds the logits of the spans that start at token i, shortest first.
        end = np.concatenate([end, np.full(max_answer_length - 1, -np.inf)])
        table = start[:, None] + np.lib.stride_tricks.sliding_window_view(end, max_answer_length)
        table[windows[first : first + size] != row] = -np.inf
        total = np.logaddexp(total, scipy.special.logsumexp(table))
        flat = table.ravel()
        best = [flat.argmax()] if count == 1 else np.argsort(-flat, kind="stable")[:count]
        for index in best:
            token, more = divmod(int(index), max_answer_length)
            if np.isfinite(flat[index]):
                spans.append((float(flat[index]), first + token, first + token + more))
    spans.sort(key=lambda span: -span[0])  # stable: of equal spans, the first window's
    return spans[:count], total


def _span_windows(encoded, rows, max_answer_length):
    """Return the window of each span, int (tokens of the context, max_answer_length), -1 for none.

    The axes are the first token of the span and its length minus 1. Of the windows that contain a
    span, take the one with the most context on the shorter side of its first token. run_squad.py
    drops the span if that window does not contain its end.
    """
    shape = (encoded.part_start[rows[-1]] + encoded.part_size[rows[-1]], max_answer_length)
    windows = np.full(shape, -1)
    max_context = np.full(shape, -1)
    for row in rows:
        size = encoded.part_size[row]
        span = slice(encoded.part_start[row], encoded.part_start[row] + size)
        left = np.arange(size)
        right = size - 1 - left
        # 100 times the score of run_squad.py: the shorter side + 0.01 x the size of the window.
        context = (100 * np.minimum(left, right) + size)[:, None]
        contained = np.arange(max_answer_length) <= right[:, None]
        better = contained & (context > max_context[span])
        windows[span][better] = row
        max_context[span] = np.where(better, context, max_context[span])
    return windows
