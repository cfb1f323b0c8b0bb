"""The pipeline of taggers."""

import dataclasses

import numpy as np

from keras_bert.runtime.label_types import typed
from keras_bert.tasks import results
from keras_bert.tasks.inputs import SOURCE
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.tagging.data import TaggedSentences
from keras_bert.tasks.tagging.tag_schemes import entities, find_scheme
from keras_bert.text.words import split_words


class TaggingPipeline(Pipeline):
    """Pipeline of `heads.tagger`."""

    options = ("grouped",)
    long_texts_options = ("window",)
    data = (TaggedSentences,)

    def _examples(self, rows):
        tokenizer = self.predictor.task_model.tokenizer
        words, spans = split_words(rows, tokenizer, self.output.characters)
        return _TaggedTexts(words, source=SOURCE, texts=tuple(rows), spans=tuple(spans))

    def _mistakes(self, examples, answers):
        mistakes = []
        label_type = self.output.label_type
        scheme = find_scheme(self.output.labels)
        separator = separator_of(self.output)
        for words, tags, answer in zip(examples.words, examples.tags, answers, strict=True):
            # "I-x" after "O" starts an entity like "B-x", so the entities are compared too.
            tags = [
                predicted if tag is None else tag
                for tag, (predicted, _) in zip(tags, answer, strict=True)
            ]
            expected_entities = _entity_of_each_word(tags, scheme)
            answered_entities = _entity_of_each_word([tag for tag, _ in answer], scheme)
            for index, (word, expected, (tag, score)) in enumerate(
                zip(words, tags, answer, strict=True)
            ):
                is_same = scheme and expected_entities[index] == answered_entities[index]
                if tag != str(expected) and not is_same:
                    mistakes.append({
                        "text": separator.join(words), "word": word,
                        "expected": typed(str(expected), label_type),
                        "tag": typed(tag, label_type), "score": float(score),
                    })  # fmt: skip
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


def separator_of(output):
    """Return the string between the words of a text; characters include their spaces."""
    return "" if output.characters else " "


def results_of(output, examples, answers, grouped):
    """Return the entities of each sentence; the words, unless `grouped`."""
    scheme = find_scheme(output.labels) if grouped else None
    if isinstance(examples, _TaggedTexts):
        texts = examples.texts
        spans_per_text = examples.spans
    else:  # the user gave words
        separator = separator_of(output)
        texts = [separator.join(words) for words in examples.words]
        spans_per_text = [_spans_of_words(words, separator) for words in examples.words]
    result_per_text = []
    for text, spans, answer in zip(texts, spans_per_text, answers, strict=True):
        parts = [(tag, score, *span) for (tag, score), span in zip(answer, spans, strict=True)]
        if scheme is not None:
            parts = _group(entities([tag for tag, _ in answer], scheme), parts)
        result_per_text.append(results.Entities(
            ({"text": text[start:end], "tag": typed(tag, output.label_type),
              "score": float(score), "start": start, "end": end}
             for tag, score, start, end in parts),
            text,
        ))  # fmt: skip
    return result_per_text


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


def _spans_of_words(words, separator):
    """Return the spans of words in characters of their text, joined by a separator."""
    ends = np.cumsum([len(word) + len(separator) for word in words]) - len(separator)
    return [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


def _group(entities_of_text, words):
    """Join the words of each entity. The score of an entity is the mean score of its words.

    An entity is (type, first word, end), and a word is (tag, score, start, end).
    """
    for type, first, end in sorted(entities_of_text, key=lambda entity: entity[1]):
        score = np.mean([score for _, score, *_ in words[first:end]])
        yield type, score, words[first][2], words[end - 1][3]
