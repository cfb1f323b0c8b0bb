"""The pipeline of multiple choice."""

import collections

from keras_bert.tasks import results
from keras_bert.tasks.inputs import SOURCE
from keras_bert.tasks.multiple_choice.data import Choices, check_item
from keras_bert.tasks.pipeline import Pipeline


class MultipleChoicePipeline(Pipeline):
    """Pipeline of `heads.multiple_choice`."""

    columns = ("text", "choices")
    data = (Choices,)
    long_texts_options = ("truncate", "error")

    def _check_row(self, location, row):
        text, choices = row
        check_item(location, text, list(choices), 0, choices)

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
