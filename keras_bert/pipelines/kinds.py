"""The pipelines of the tasks, with their inputs and results."""

import collections
import dataclasses
import warnings

import numpy as np

from keras_bert.data.conll import TaggedSentences
from keras_bert.data.examples import Examples
from keras_bert.data.squad import Questions
from keras_bert.data.swag import Choices
from keras_bert.data.tag_schemes import entities, find_scheme
from keras_bert.pipelines import results
from keras_bert.pipelines.base import Pipeline
from keras_bert.pipelines.inputs import (
    SOURCE,
    check_not_given,
    check_texts,
    is_pair,
    listed,
)
from keras_bert.runtime.arguments import LONG_TEXTS
from keras_bert.runtime.label_types import typed
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks import question_windows


class TextPipeline(Pipeline):
    """Pipeline of a task that reads texts or pairs of texts."""

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self._pairs = self.output.pairs
        if self._pairs:
            self.columns = ("text", "text_pair")
            if self.long_texts == "window":
                raise ValueError(
                    'long_texts="window" is only for single texts; use "truncate" for pairs'
                )

    def _check_data(self, examples, scored=False):
        super()._check_data(examples, scored)
        if isinstance(examples, Examples) and self._pairs != (examples.text_pairs is not None):
            reads = "pairs of texts" if self._pairs else "single texts"
            has = "single texts" if self._pairs else "pairs of texts"
            raise ValueError(f"{self._engine.name!r} reads {reads}; {examples.source} has {has}")

    def _rows(self, inputs, text_pair=None, **others):
        check_not_given(**others)
        if not self._pairs:
            if text_pair is not None:
                raise ValueError(
                    f"{self._engine.name!r} reads single texts; remove text_pair, or, if "
                    "it was trained on pairs, load it with keras_bert.load(name, "
                    f"task={self.task!r}, pairs=True)"
                )
            if _is_pair_of_strings(inputs):
                warnings.warn(
                    f"{self._engine.name!r} reads single texts, so the tuple is two texts with an "
                    "answer each. For a pair of texts, load the model with "
                    "keras_bert.load(name, task=..., pairs=True); for two texts, give a list",
                    stacklevel=level_of_caller(),
                )
            rows, is_single = listed(inputs)
            return check_texts(rows), is_single
        if text_pair is not None:
            first, is_single = listed(inputs)
            second, _ = listed(text_pair, "text_pair")
            if len(first) != len(second):
                raise ValueError(
                    f"text_pair must have as many texts as the inputs, {len(first)}; received "
                    f"{len(second)}"
                )
            pairs = list(zip(first, second, strict=True))
        else:
            is_single = _is_pair_of_strings(inputs)
            if isinstance(inputs, tuple) and len(inputs) == 2 and not is_single:
                raise ValueError(
                    "give two lists of texts as inputs and text_pair, or a list of pairs; received "
                    "a tuple of two"
                )
            pairs = [inputs] if is_single else listed(inputs)[0]
        for number, pair in enumerate(pairs, 1):
            if not is_pair(pair):
                raise ValueError(
                    f"input {number} must be a pair of texts, such as ('a', 'b'), or give "
                    f"text_pair; received {pair!r:.80}"
                )
            check_texts(pair, f"input {number}, text")
        return [tuple(pair) for pair in pairs], is_single

    def _examples(self, rows):
        if self._pairs:
            texts, text_pairs = map(list, zip(*rows, strict=True))
            return Examples(texts, text_pairs=text_pairs, source=SOURCE)
        return Examples(rows, source=SOURCE)


def _is_pair_of_strings(inputs):
    if not isinstance(inputs, tuple) or len(inputs) != 2:
        return False
    return all(isinstance(text, str) for text in inputs)


def _texts_of(examples, index):
    """Return the text or the pair of texts of an example."""
    if examples.text_pairs is None:
        return {"text": examples.texts[index]}
    return {"text": examples.texts[index], "text_pair": examples.text_pairs[index]}


class Classification(TextPipeline):
    """Pipeline of `heads.classifier` and `heads.next_sentence`."""

    options: tuple[str, ...] = ("top_k",)
    long_texts_options = LONG_TEXTS

    def _encode(self, examples):
        return self._engine.encode(examples, long_texts=self.long_texts)

    def _results(self, examples, answers, **options):
        labels = self._typed_labels()
        result_per_text: list[results.Label | results.Labels] = []
        for text, row in zip(examples.texts, answers, strict=True):
            order = np.argsort(-row, kind="stable")
            ranked = [{"label": labels[index], "score": float(row[index])} for index in order]
            if "top_k" in options:
                ranked = ranked[: options["top_k"]]
            elif self.output.multi_label:
                ranked = [scored for scored in ranked if scored["score"] >= 0.5]
            else:
                result_per_text.append(results.Label(ranked[0], text))
                continue
            result_per_text.append(results.Labels(ranked, text))
        return result_per_text

    def _typed_labels(self):
        """Return the labels in the type that results have."""
        return [typed(label, self.output.label_type) for label in self.output.labels]

    def _mistakes(self, examples, answers):
        mistakes = []
        labels = self._typed_labels()
        label_of_text = dict(zip(self.output.labels, labels, strict=True))
        for index, row in enumerate(answers):
            if self.output.multi_label:
                expected_set = {label_of_text[str(label)] for label in examples.label_sets[index]}
                answered_set = {labels[column] for column in np.flatnonzero(row >= 0.5)}
                wrong = expected_set ^ answered_set
                if not wrong:
                    continue
                # The score of a wrong label is the probability of its wrong value, at least 0.5.
                score = max(abs(row[labels.index(label)] - 0.5) + 0.5 for label in wrong)
                answered = sorted(answered_set)
                expected = sorted(expected_set)
            else:
                answered = labels[row.argmax()]
                expected = label_of_text[str(examples.labels[index])]
                if answered == expected:
                    continue
                score = row.max()
            answer = {"expected": expected, "label": answered, "score": float(score)}
            mistakes.append(_texts_of(examples, index) | answer)
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


class Regression(Classification):
    """Pipeline of `heads.regressor`."""

    options: tuple[str, ...] = ()

    def _results(self, examples, answers, **options):
        return [{"score": float(score)} for score in answers]

    def _mistakes(self, examples, answers):
        order = np.argsort(-np.abs(np.array(examples.scores) - answers), kind="stable")
        mistakes = []
        for index in order:
            scores = {"expected": examples.scores[index], "score": float(answers[index])}
            mistakes.append(_texts_of(examples, index) | scores)
        return mistakes


class Tagging(Pipeline):
    """Pipeline of `heads.tagger`."""

    options = ("grouped",)
    data = (TaggedSentences,)
    long_texts_options = ("window",)

    def _rows(self, inputs, **others):
        check_not_given(**others)
        rows, is_single = listed(inputs)
        return check_texts(rows), is_single

    def _examples(self, rows):
        words, spans = self._engine.split_words(rows)
        return _TaggedTexts(words, source=SOURCE, texts=tuple(rows), spans=tuple(spans))

    def _results(self, examples, answers, *, grouped=True, **options):
        scheme = find_scheme(self.output.labels) if grouped else None
        if isinstance(examples, _TaggedTexts):
            texts = examples.texts
            spans_per_text = examples.spans
        else:  # the user gave words
            texts = [" ".join(words) for words in examples.words]
            spans_per_text = [_spans_of_words(words) for words in examples.words]
        result_per_text = []
        for text, spans, answer in zip(texts, spans_per_text, answers, strict=True):
            parts = [(tag, score, *span) for (tag, score), span in zip(answer, spans, strict=True)]
            if scheme is not None:
                parts = _group(entities([tag for tag, _ in answer], scheme), parts)
            result_per_text.append(results.Entities(
                ({"text": text[start:end], "tag": typed(tag, self.output.label_type),
                  "score": float(score), "start": start, "end": end}
                 for tag, score, start, end in parts),
                text,
            ))  # fmt: skip
        return result_per_text

    def _mistakes(self, examples, answers):
        mistakes = []
        label_type = self.output.label_type
        scheme = find_scheme(self.output.labels)
        for words, tags, answer in zip(examples.words, examples.tags, answers, strict=True):
            # "I-x" after "O" starts an entity like "B-x", so the entities are compared too.
            expected_entities = _entity_of_each_word(tags, scheme)
            answered_entities = _entity_of_each_word([tag for tag, _ in answer], scheme)
            for index, (word, expected, (tag, score)) in enumerate(
                zip(words, tags, answer, strict=True)
            ):
                is_same = scheme and expected_entities[index] == answered_entities[index]
                if tag != str(expected) and not is_same:
                    mistakes.append({
                        "text": " ".join(words), "word": word,
                        "expected": typed(str(expected), label_type),
                        "tag": typed(tag, label_type), "score": float(score),
                    })  # fmt: skip
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


def _entity_of_each_word(tags, scheme):
    """Return the entity (type, first word, end) of each word, or `None` outside of entities."""
    entity_of_word: list[tuple | None] = [None] * len(tags)
    for entity in entities(tags, scheme) if scheme else ():
        _, first, end = entity
        entity_of_word[first:end] = [entity] * (end - first)
    return entity_of_word


@dataclasses.dataclass(frozen=True)
class _TaggedTexts(TaggedSentences):
    """Sentences with their texts, and the span of each word in characters."""

    texts: tuple = ()
    spans: tuple = ()


def _spans_of_words(words):
    """Return the spans of words in characters of their text, joined by spaces."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


def _group(entities_of_text, words):
    """Join the words of each entity. The score of an entity is the mean score of its words.

    An entity is (type, first word, end), and a word is (tag, score, start, end).
    """
    for type, first, end in sorted(entities_of_text, key=lambda entity: entity[1]):
        score = np.mean([score for _, score, *_ in words[first:end]])
        yield type, score, words[first][2], words[end - 1][3]


class QuestionAnswering(Pipeline):
    """Pipeline of `heads.span_selector`."""

    columns = ("question", "context")
    options = ("top_k", "max_answer_length", "null_threshold")
    data = (Questions,)
    long_texts_options = ("window",)

    def _rows(self, inputs=None, text_pair=None, question=None, context=None, **others):
        check_not_given(**others)
        if context is None and question is None and text_pair is not None:
            context = text_pair
            text_pair = None
        check_not_given(text_pair=text_pair)
        if inputs is not None and context is not None and question is None:
            question = inputs
            inputs = None
        if inputs is not None:  # (question, context), or a list of such pairs
            is_single = isinstance(inputs, tuple) and all(isinstance(x, str) for x in inputs)
            rows = [inputs] if is_single else listed(inputs)[0]
            for number, row in enumerate(rows, 1):
                if not is_pair(row):
                    raise ValueError(
                        f"input {number} must be a question and a context; received {row!r:.80}. "
                        "Use question= and context="
                    )
        elif question is None or context is None:
            raise ValueError("question answering needs question= and context=")
        else:
            questions, is_single = listed(question, "question")
            contexts, is_shared = listed(context, "context")
            if is_shared:
                contexts *= len(questions)
            if len(questions) != len(contexts):
                raise ValueError(
                    f"context must be one text or one for each of the {len(questions)} questions; "
                    f"received {len(contexts)}"
                )
            rows = list(zip(questions, contexts, strict=True))
        for number, row in enumerate(rows, 1):
            check_texts(row, f"input {number}, text")
        return rows, is_single

    def _part(self, examples, settings, options, advance):
        question_windows.check_questions(examples)
        return super()._part(examples, settings, options, advance)

    def _examples(self, rows):
        questions = [question for question, _ in rows]
        contexts = [context for _, context in rows]
        return Questions(questions, contexts, source=SOURCE)

    def _answers(self, examples, batch_size, on_batch=None, **options):
        if "null_threshold" in options and not self.output.no_answer:
            raise ValueError(
                f"null_threshold needs a model with no_answer=True; {self._engine.name!r} always "
                "gives an answer. If it was trained on unanswerable questions, load it with "
                'keras_bert.load(name, task="span_selector", no_answer=True)'
            )
        return super()._answers(examples, batch_size, on_batch, **options)

    def _decoding(self, options):
        return options

    def _results(self, examples, answers, *, top_k=None, **options):
        pairs = zip(examples.contexts, answers, strict=True)
        if top_k is None:
            return [results.Answer(_renamed(answer), context) for context, answer in pairs]
        return [results.Entities(map(_renamed, ranked), context, None) for context, ranked in pairs]

    def _mistakes(self, examples, answers):
        from keras_bert.tasks import question_answering

        mistakes = []
        is_right = question_answering.are_right(examples, answers)
        for index, answer in enumerate(answers):
            if is_right[index]:
                continue
            accepted = [text for text, _ in examples.answers[index]]
            question = {"question": examples.questions[index], "context": examples.contexts[index]}
            mistakes.append(question | {"expected": accepted} | _renamed(answer))
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


def _renamed(answer):
    return {"answer": answer["text"]} | {key: answer[key] for key in ("start", "end", "score")}


class MultipleChoice(Pipeline):
    """Pipeline of `heads.multiple_choice`."""

    columns = ("text", "choices")
    data = (Choices,)
    long_texts_options = ("truncate", "error")

    def _rows(self, inputs, choices=None, **others):
        check_not_given(**others)
        if choices is None:  # (text, choices), or a list of such pairs
            is_single = (
                isinstance(inputs, (list, tuple))
                and is_pair(inputs)
                and isinstance(inputs[0], str)
                and not isinstance(inputs[1], str)
            )
            pairs = [inputs] if is_single else listed(inputs)[0]
            if not all(map(is_pair, pairs)):
                raise ValueError("multiple choice needs choices=, a list of strings per text")
            texts = [pair[0] for pair in pairs]
            choices = [pair[1] for pair in pairs]
        else:
            texts, is_single = listed(inputs)
            choices = [choices] if is_single else listed(choices, "choices")[0]
        for number, row in enumerate(choices, 1):
            if isinstance(row, (str, bytes, dict)) or not hasattr(row, "__len__"):
                raise ValueError(
                    f"choices of text {number} must be a list of strings; received {row!r:.80}"
                )
            if len(row) < 2:
                raise ValueError(
                    f"choices of text {number} must be at least two; received {len(row)}"
                )
        choices = [list(row) for row in choices]
        if len(texts) != len(choices):
            raise ValueError(
                f"choices must have a list for each of the {len(texts)} texts; received "
                f"{len(choices)}"
            )
        return list(zip(check_texts(texts), choices, strict=True)), is_single

    def _sequences(self, examples):
        return sum(map(len, examples.choices))

    def _run_rows(self, rows, settings, options, warn=True):
        # All rows of a batch must have the same number of choices.
        indices_per_size = collections.defaultdict(list)
        for index, (_, choices) in enumerate(rows):
            indices_per_size[len(choices)].append(index)
        result_per_row = results.Results([None] * len(rows))
        for indices in indices_per_size.values():
            part = [rows[index] for index in indices]
            results_of_part = super()._run_rows(part, settings, options, warn=False)
            for index, result in zip(indices, results_of_part, strict=True):
                result_per_row[index] = result
        if warn:
            self._warn_of_truncation()
        return result_per_row

    def _examples(self, rows):
        texts, choices = map(list, zip(*rows, strict=True))
        return Choices(texts, choices, source=SOURCE)

    def _results(self, examples, answers, **options):
        return [
            {"choice": int(row.argmax()), "text": choices[row.argmax()], "score": float(row.max())}
            for choices, row in zip(examples.choices, answers, strict=True)
        ]

    def _mistakes(self, examples, answers):
        mistakes = []
        for index, row in enumerate(answers):
            choices = examples.choices[index]
            chosen = row.argmax()
            expected = examples.labels[index]
            if chosen != expected:
                mistakes.append({
                    "text": examples.texts[index], "expected": choices[expected],
                    "choice": choices[chosen], "score": float(row.max()),
                })  # fmt: skip
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


class MaskedLM(TextPipeline):
    """Pipeline of `heads.masked_lm` and `heads.pretraining`."""

    options = ("top_k",)
    chunk = 256  # the logits of a masked token take 4 bytes per token of the vocabulary

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self._pairs = False
        self.columns = ("text",)

    def _check_data(self, examples, scored=False):
        if scored:
            raise ValueError(
                "evaluate and errors do not apply to masked tokens. Use keras-bert pretrain "
                "--held-out, which scores a model while it is trained"
            )
        super()._check_data(examples)

    def _answers(self, examples, batch_size, on_batch=None, *, top_k=5, **options):
        encoded = self._engine.encode_masks(examples.texts)
        return self._engine.candidates(encoded, top_k, batch_size=batch_size, on_batch=on_batch)

    def _decoding(self, options):
        return options

    def _results(self, examples, answers, **options):
        result_per_text = []
        for masks in answers:
            ranked_per_mask = [_ranked_tokens(mask) for mask in masks]
            has_one_mask = len(ranked_per_mask) == 1
            result_per_text.append(
                results.Results(ranked_per_mask[0] if has_one_mask else ranked_per_mask)
            )
        return result_per_text


def _ranked_tokens(mask):
    return [{"token": token, "score": score} for token, score in mask]


KINDS = {
    "classifier": Classification,
    "next_sentence": Classification,
    "regressor": Regression,
    "tagger": Tagging,
    "span_selector": QuestionAnswering,
    "multiple_choice": MultipleChoice,
    "masked_lm": MaskedLM,
    "pretraining": MaskedLM,
}
