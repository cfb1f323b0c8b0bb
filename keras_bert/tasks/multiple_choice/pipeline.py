"""The pipeline of multiple choice."""

import collections

from keras_bert.tasks import results
from keras_bert.tasks.inputs import SOURCE, check_not_given, check_texts, is_pair, listed
from keras_bert.tasks.multiple_choice.data import Choices
from keras_bert.tasks.pipeline import Pipeline


class MultipleChoicePipeline(Pipeline):
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
