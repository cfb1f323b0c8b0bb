"""The pipeline of tasks that read texts or pairs of texts."""

import warnings

from keras_bert.data.examples import Examples
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.inputs import SOURCE, check_not_given, check_texts, is_pair, listed
from keras_bert.tasks.pipeline import Pipeline


class TextPipeline(Pipeline):
    """Pipeline of a task that reads texts or pairs of texts."""

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self._pairs = self.output.pairs
        if self._pairs:
            self.columns = ("text", "text_pair")

    def _check_data(self, examples, scored=False):
        super()._check_data(examples, scored)
        if isinstance(examples, Examples):
            check_pairs(self._pairs, examples)

    def _rows(self, inputs, text_pair=None, **others):
        check_not_given(**others)
        if self._pairs:
            return _rows_of_pairs(inputs, text_pair)
        if text_pair is not None:
            raise ValueError(
                f"{self._engine.name!r} reads single texts; remove text_pair, or, if it was "
                f"trained on pairs, use keras_bert.load(name, task={self.task!r}, pairs=True)"
            )
        if _is_pair_of_strings(inputs):
            warnings.warn(
                f"{self._engine.name!r} reads single texts, so the tuple is two texts with an "
                "answer each. For a pair, use keras_bert.load(name, task=..., pairs=True)",
                stacklevel=level_of_caller(),
            )
        rows, is_single = listed(inputs)
        return check_texts(rows), is_single

    def _examples(self, rows):
        if self._pairs:
            texts, text_pairs = map(list, zip(*rows, strict=True))
            return Examples(texts, text_pairs=text_pairs, source=SOURCE)
        return Examples(rows, source=SOURCE)


def _rows_of_pairs(inputs, text_pair):
    """Return pairs of texts, and True if the inputs are a single pair."""
    is_single = _is_pair_of_strings(inputs)
    if text_pair is not None:
        first, is_single = listed(inputs)
        second, _ = listed(text_pair, "text_pair")
        if len(first) != len(second):
            raise ValueError(
                f"text_pair must have as many texts as the inputs, {len(first)}; received "
                f"{len(second)}"
            )
        pairs = list(zip(first, second, strict=True))
    elif is_single:
        pairs = [inputs]
    else:
        if isinstance(inputs, tuple) and len(inputs) == 2:  # the columns of two pairs, perhaps
            raise ValueError("give two lists of texts as inputs and text_pair, or a list of pairs")
        pairs, _ = listed(inputs)
    for number, pair in enumerate(pairs, 1):
        if not is_pair(pair):
            raise ValueError(
                f"input {number} must be a pair of texts, such as ('a', 'b'), or give text_pair; "
                f"received {pair!r:.80}"
            )
        check_texts(pair, f"input {number}, text")
    return [tuple(pair) for pair in pairs], is_single


def _is_pair_of_strings(inputs):
    is_tuple = isinstance(inputs, tuple) and len(inputs) == 2
    return is_tuple and all(isinstance(text, str) for text in inputs)


def check_pairs(pairs: bool, examples: Examples):
    """Raise an error if a model reads pairs and the examples are single texts, or the reverse."""
    if pairs == (examples.text_pairs is not None):
        return
    reads, has = ("pairs of texts", "single texts") if pairs else ("single texts", "pairs of texts")
    raise ValueError(
        f"the model reads {reads}; {examples.source} has {has}. Give {reads}, or train a model on "
        f"{has}"
    )


def texts_of(examples, index):
    """Return the text or the pair of texts of an example."""
    names = ("text", "text_pair")
    return {
        name: column[index] for name, column in zip(names, examples.text_columns(), strict=False)
    }
