"""The pipelines of classifiers and regressors."""

import numpy as np

from keras_bert.runtime.arguments import LONG_TEXTS
from keras_bert.runtime.label_types import typed
from keras_bert.tasks.text import TextPipeline, targets_of, texts_of


def chosen_labels(output, answers):
    """Return the answered targets: label indices (n,), or label sets (n, labels)."""
    return answers >= 0.5 if output.multi_label else answers.argmax(axis=1)


class ClassificationPipeline(TextPipeline):
    """Pipeline of `heads.classifier` and `heads.next_sentence`."""

    options: tuple[str, ...] = ("top_k",)
    long_texts_options = LONG_TEXTS

    def _mistakes(self, examples, answers):
        labels = [typed(label, self.output.label_type) for label in self.output.labels]
        targets = targets_of(examples, self.output)
        chosen = chosen_labels(self.output, answers)
        scores = answers.max(axis=1)
        if self.output.multi_label:
            # The score of a wrong label is the probability of its wrong value, at least 0.5.
            scores = np.where(chosen != targets, np.abs(answers - 0.5) + 0.5, 0).max(axis=1)

        def name(target):
            if self.output.multi_label:
                return sorted(labels[index] for index in np.flatnonzero(target))
            return labels[target]

        mistakes = []
        for index in np.argsort(-scores, kind="stable"):
            if np.any(chosen[index] != targets[index]):
                answer = {
                    "expected": name(targets[index]),
                    "label": name(chosen[index]),
                    "score": float(scores[index]),
                }
                mistakes.append(texts_of(examples, index) | answer)
        return mistakes


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
