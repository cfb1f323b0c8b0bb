"""Labels, scores and label sets as arrays."""

import numpy as np

from keras_bert.data.examples import unknown_label


def targets_of(examples, output=None, labels=None):
    """Return the targets of examples: (n,), (n, 1) or (n, labels); `None` without labels.

    `output` is the `TaskOutput` of a model; without one, the labels are `labels`, by default those
    of the examples.
    """
    kinds = {
        "labels": examples.labels,
        "scores": examples.scores,
        "label sets": examples.label_sets,
    }
    given = {kind: column for kind, column in kinds.items() if column is not None}
    if not given:
        return None
    ((kind, column),) = given.items()
    if output is not None:
        wanted = "label sets" if output.multi_label else "labels"
        wanted = "scores" if output.labels is None else wanted
        if kind != wanted:
            raise ValueError(f"the model takes {wanted}; received {kind} in {examples.source}")
    if kind == "scores":
        return np.array(column, np.float32)[:, None]
    if output is not None:
        labels = output.labels
    elif labels is None:
        labels = [str(label) for label in examples.label_names()]
    index = {label: number for number, label in enumerate(labels)}
    sets = column if kind == "label sets" else [(label,) for label in column]
    sets = [[str(label) for label in label_set] for label_set in sets]
    for row, names in enumerate(sets):
        for name in names:
            if name not in index:
                whose = "" if output is None else "model's "
                raise unknown_label(examples.location(row), name, labels, whose=whose)
    if kind == "labels":
        return np.array([index[name] for (name,) in sets], np.int32)
    targets = np.zeros((len(sets), len(index)), np.float32)
    for row, names in zip(targets, sets, strict=True):
        row[[index[name] for name in names]] = 1
    return targets
