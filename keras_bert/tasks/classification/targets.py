"""Labels, scores and label sets as arrays."""

import numpy as np

from keras_bert.data.examples import unknown_label


def targets_of(examples, output=None, labels=None):
    """Return the targets of examples: (n,), (n, 1) or (n, labels); `None` without labels.

    `output` is the `TaskOutput` of a model; without one, the labels are `labels`, by default those
    of the examples.
    """
    columns = {
        "labels": examples.labels,
        "scores": examples.scores,
        "label sets": examples.label_sets,
    }
    kind = next((kind for kind, column in columns.items() if column is not None), None)
    if kind is None:
        return None
    if output is not None:
        labels = output.labels
        wanted = "label sets" if output.multi_label else "labels"
        wanted = "scores" if labels is None else wanted
        if kind != wanted:
            raise ValueError(f"the model takes {wanted}; received {kind} in {examples.source}")
    if kind == "scores":
        return np.array(examples.scores, np.float32)[:, None]
    if labels is None:
        labels = [str(label) for label in examples.label_names()]
    index_of_label = {label: index for index, label in enumerate(labels)}
    targets = np.zeros((len(examples), len(labels)), np.float32)
    for row, label_set in enumerate(examples.label_sets or zip(examples.labels, strict=True)):
        for label in map(str, label_set):
            if label not in index_of_label:
                whose = "" if output is None else "model's "
                raise unknown_label(examples.location(row), label, labels, whose=whose)
            targets[row, index_of_label[label]] = 1
    return targets if kind == "label sets" else targets.argmax(axis=1).astype(np.int32)
