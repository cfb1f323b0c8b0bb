"""The pipelines of classifiers and regressors."""

import numpy as np

from keras_bert.runtime.arguments import LONG_TEXTS
from keras_bert.runtime.label_types import typed
from keras_bert.tasks.text import TextPipeline, texts_of


class ClassificationPipeline(TextPipeline):
    """Pipeline of `heads.classifier` and `heads.next_sentence`."""

    options: tuple[str, ...] = ("top_k",)
    long_texts_options = LONG_TEXTS

    def _mistakes(self, examples, answers):
        mistakes = []
        labels = [typed(label, self.output.label_type) for label in self.output.labels]
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
            mistakes.append(texts_of(examples, index) | answer)
        return sorted(mistakes, key=lambda mistake: -mistake["score"])


class RegressionPipeline(ClassificationPipeline):
    """Pipeline of `heads.regressor`."""

    options: tuple[str, ...] = ()

    def _mistakes(self, examples, answers):
        order = np.argsort(-np.abs(np.array(examples.scores) - answers), kind="stable")
        mistakes = []
        for index in order:
            scores = {"expected": examples.scores[index], "score": float(answers[index])}
            mistakes.append(texts_of(examples, index) | scores)
        return mistakes
