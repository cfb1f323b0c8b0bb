"""The pipeline of multiple choice."""

import collections
from collections.abc import Sized

from keras_bert.tasks import results
from keras_bert.tasks.inputs import SOURCE, check_not_given, is_pair, listed
from keras_bert.tasks.multiple_choice.data import Choices, check_item
from keras_bert.tasks.pipeline import Pipeline


class MultipleChoicePipeline(Pipeline):
    """Pipeline of `heads.multiple_choice`."""

    columns = ("text", "choices")
    data = (Choices,)
    long_texts_options = ("truncate", "error")

    def _rows(self, inputs, choices=None, **others):
        check_not_given(**others)
        if choices is None:  # (text, choices), or a list of such pairs
            is_single = is_pair(inputs) and isinstance(inputs[0], str)
            is_single = is_single and not isinstance(inputs[1], str)
            rows = [inputs] if is_single else listed(inputs)[0]
            if not all(map(is_pair, rows)):
                raise ValueError("multiple choice needs choices=, a list of strings per text")
        else:
            texts, is_single = listed(inputs)
            choices = [choices] if is_single else listed(choices, "choices")[0]
            if len(texts) != len(choices):
                raise ValueError(
                    f"choices must have a list for each of the {len(texts)} texts; received "
                    f"{len(choices)}"
                )
            rows = list(zip(texts, choices, strict=True))
        for number, (text, row) in enumerate(rows, 1):
            if not isinstance(row, Sized):
                raise ValueError(f"input {number}: the choices must be a list; received {row!r}")
            check_item(f"input {number}", text, row, 0, len(row))
        return [(text, list(row)) for text, row in rows], is_single

    def _sequences(self, examples):
        return sum(map(len, examples.choices))

    def _run_rows(self, rows, settings, options):
        # All rows of a batch must have the same number of choices.
        indices_per_size = collections.defaultdict(list)
        for index, (_, choices) in enumerate(rows):
            indices_per_size[len(choices)].append(index)
        result_per_row = results.Results([None] * len(rows))
        for indices in indices_per_size.values():
            part = [rows[index] for index in indices]
            results_of_part = super()._run_rows(part, settings, options)
            for index, result in zip(indices, results_of_part, strict=True):
                result_per_row[index] = result
        return result_per_row

    def _examples(self, rows):
        texts, choices = map(list, zip(*rows, strict=True))
        return Choices(texts, choices, source=SOURCE)

    def _mistakes(self, examples, answers):
        mistakes = []
        rows = zip(examples.texts, examples.choices, examples.labels, answers, strict=True)
        for text, choices, expected, row in rows:
            chosen = row.argmax()
            if chosen != expected:
                mistakes.append({
                    "text": text, "expected": choices[expected], "choice": choices[chosen],
                    "score": float(row.max()),
                })  # fmt: skip
        return sorted(mistakes, key=lambda mistake: -mistake["score"])
