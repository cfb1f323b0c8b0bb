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
                    f"{self._engine.name!r} reads single texts; remove text_pair, or load a model "
                    "of pairs from another format with keras_bert.load(name, pairs=True)"
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
            (first, is_single), (second, _) = listed(inputs), listed(text_pair, "text_pair")
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
    is_pair_of_any = isinstance(inputs, tuple) and len(inputs) == 2
    return is_pair_of_any and all(isinstance(text, str) for text in inputs)


class Classification(TextPipeline):
    """Pipeline of `heads.classifier` and `heads.next_sentence`."""

    options: tuple[str, ...] = ("top_k",)
    long_texts_options = LONG_TEXTS

    def _encode(self, examples):
        return self._engine.encode(examples, long_texts=self.long_texts)

    def _results(self, examples, answers, **options):
        labels = self._typed_labels()
        found: list[results.Label | results.Labels] = []
        for text, row in zip(examples.texts, answers, strict=True):
            order = np.argsort(-row, kind="stable")
            ranked = [{"label": labels[index], "score": float(row[index])} for index in order]
            if "top_k" in options:
                ranked = ranked[: options["top_k"]]
            elif self.output.multi_label:
                ranked = [each for each in ranked if each["score"] >= 0.5]
            else:
                found.append(results.Label(ranked[0], text))
                continue
            found.append(results.Labels(ranked, text))
        return found

    def _typed_labels(self):
        """Return the labels in the type that results have."""
        return [typed(label, self.output.label_type) for label in self.output.labels]

    def _mistakes(self, examples, answers):
        labels, mistakes = self._typed_labels(), []
        label_of_text = dict(zip(self.output.labels, labels, strict=True))
        for index, row in enumerate(answers):
            if self.output.multi_label:
                expected = {label_of_text[label] for label in examples.label_sets[index]}
                given = {labels[number] for number in np.flatnonzero(row >= 0.5)}
                wrong = [abs(row[labels.index(label)] - 0.5) + 0.5 for label in expected ^ given]
                if not wrong:
                    continue
                score, given, expected = max(wrong), sorted(given), sorted(expected)
            else:
                given, expected = labels[row.argmax()], label_of_text[examples.labels[index]]
                if given == expected:
                    continue
                score = row.max()
            mistake = {"text": examples.texts[index]}
            if examples.text_pairs is not None:
                mistake["text_pair"] = examples.text_pairs[index]
            mistakes.append(mistake | {"expected": expected, "label": given, "score": float(score)})
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
            mistake = {"text": examples.texts[index]}
            if examples.text_pairs is not None:
                mistake["text_pair"] = examples.text_pairs[index]
            scores = {"expected": examples.scores[index], "score": float(answers[index])}
            mistakes.append(mistake | scores)
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
        if not hasattr(examples, "texts"):  # sentences that are split into words
            spans = [_spans_of_words(words) for words in examples.words]
            texts = [" ".join(words) for words in examples.words]
        else:
            texts, spans = examples.texts, examples.spans
        found = []
        for text, span, answer in zip(texts, spans, answers, strict=True):
            words = [(tag, score, *ends) for (tag, score), ends in zip(answer, span, strict=True)]
            if scheme is not None:
                words = _group(entities([tag for tag, _ in answer], scheme), words)
            found.append(results.Entities(
                ({"text": text[start:end], "tag": tag, "score": float(score), "start": start,
                  "end": end} for tag, score, start, end in words),
                text,
            ))  # fmt: skip
        return found

    def _mistakes(self, examples, answers):
        mistakes = []
        scheme = find_scheme(self.output.labels)
        for words, tags, answer in zip(examples.words, examples.tags, answers, strict=True):
            # "I-x" after "O" starts an entity like "B-x", so the entities are compared too.
            expected_entities = _entity_of_each_word(tags, scheme)
            answered_entities = _entity_of_each_word([tag for tag, _ in answer], scheme)
            for index, (word, expected, (tag, score)) in enumerate(
                zip(words, tags, answer, strict=True)
            ):
                is_same = scheme and expected_entities[index] == answered_entities[index]
                if tag != expected and not is_same:
                    mistakes.append({
                        "text": " ".join(words), "word": word, "expected": expected, "tag": tag,
                        "score": float(score),
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


def _group(spans, words):
    """Join the words of each entity; its score is the mean of their scores."""
    for type, first, end in sorted(spans, key=lambda entity: entity[1]):
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
            context, text_pair = text_pair, None
        check_not_given(text_pair=text_pair)
        if inputs is not None and context is not None and question is None:
            question, inputs = inputs, None
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
        return Questions([a for a, _ in rows], [b for _, b in rows], source=SOURCE)

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
            texts, choices = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
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
        # A batch has the same number of choices in each row.
        groups = collections.defaultdict(list)
        for index, (_, choices) in enumerate(rows):
            groups[len(choices)].append(index)
        found = results.Results([None] * len(rows))
        for indices in groups.values():
            part = [rows[index] for index in indices]
            part = super()._run_rows(part, settings, options, warn=False)
            for index, result in zip(indices, part, strict=True):
                found[index] = result
        if warn:
            self._warn_of_truncation()
        return found

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
            chosen, expected = row.argmax(), examples.labels[index]
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
        self._pairs, self.columns = False, ("text",)

    def _check_data(self, examples, scored=False):
        if scored:
            raise ValueError(
                "evaluate and errors do not apply to masked tokens. keras-bert pretrain --held-out "
                "scores a model while it is trained"
            )
        super()._check_data(examples)

    def _answers(self, examples, batch_size, on_batch=None, *, top_k=5, **options):
        encoded = self._engine.encode_masks(examples.texts)
        return self._engine.candidates(encoded, top_k, batch_size=batch_size, on_batch=on_batch)

    def _decoding(self, options):
        return options

    def _results(self, examples, answers, **options):
        found = []
        for masks in answers:
            ranked = [[{"token": t, "score": score} for t, score in mask] for mask in masks]
            found.append(results.Results(ranked[0] if len(ranked) == 1 else ranked))
        return found


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
