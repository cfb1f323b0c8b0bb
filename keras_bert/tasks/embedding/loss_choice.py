"""The loss of embeddings: by name, by default for the kind of data, and what data it needs."""

import warnings

import keras
import numpy as np

from keras_bert import losses
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.warn import level_of_caller

LOSSES = {
    "multiple_negatives_ranking": losses.MultipleNegativesRanking,
    "cosine_similarity": losses.CosineSimilarity,
    "cosent": losses.CoSENT,
    "triplet": losses.Triplet,
    "contrastive": losses.Contrastive,
    "distillation": losses.Distillation,
}
_OF_SCORES = ("cosine_similarity", "cosent", "contrastive")
TEXTS_OF_TRIPLET = 3


def inner_loss(loss):
    """Return the loss that a `Matryoshka` applies, or the loss itself."""
    return loss.loss if isinstance(loss, losses.Matryoshka) else loss


def make_loss(loss, examples):
    """Return the Keras loss, by default the one for the kind of data."""
    keras_loss = loss if isinstance(loss, keras.losses.Loss) else None
    if isinstance(loss, tuple(LOSSES.values())):
        loss = next(name for name, kind in LOSSES.items() if isinstance(keras_loss, kind))
    has_scores = examples.scores is not None
    has_vectors = examples.vectors is not None
    if loss is None:
        of_texts = "cosent" if has_scores else "multiple_negatives_ranking"
        loss = "distillation" if has_vectors else of_texts
    if isinstance(loss, losses.Matryoshka):
        raise ValueError("give the loss inside as loss, and the widths as matryoshka_dims")
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or a loss of keras_bert.losses; received "
            f"{loss!r:.80}"
        )
    if (has_scores, has_vectors) != (loss in _OF_SCORES, loss == "distillation"):
        needed = "scored pairs" if loss in _OF_SCORES else "rows without scores"
        if loss == "distillation":
            needed = "rows with vectors"
        received = "scores" if has_scores else "neither scores nor vectors"
        if has_vectors:
            received = "vectors"
        raise ValueError(
            f"the loss {loss} needs {needed}; {examples.source}: there are {received}. Leave out "
            "loss to use the default"
        )
    low, high = {"cosine_similarity": (-1, 1), "contrastive": (0, 1)}.get(loss, (-np.inf, np.inf))
    wrong = [score for score in examples.scores or () if not low <= score <= high]
    if wrong:
        raise ValueError(
            f"the loss {loss} needs scores from {low} to {high}; {examples.source} has {wrong[0]}. "
            "Scale the scores, or use the loss cosent"
        )
    others = [score for score in examples.scores or () if score not in (0, 1)]
    if loss == "contrastive" and others:
        warnings.warn(
            f"{examples.source}: the loss contrastive is for the scores 0 and 1; {len(others)} of "
            f"{len(examples)} scores are between them, such as {others[0]}. Use cosent or "
            "cosine_similarity",
            stacklevel=level_of_caller(),
        )
    if loss == "triplet" and len(examples.texts[0]) < TEXTS_OF_TRIPLET:
        raise ValueError(
            f"the loss triplet needs rows of three texts; {examples.source} has rows of "
            f"{len(examples.texts[0])}. Add hard negatives"
        )
    return LOSSES[loss]() if keras_loss is None else keras_loss


def matryoshka(loss, sizes, width):
    """Return the loss for the first numbers of vectors with a width, too."""
    if not isinstance(sizes, (list, tuple)) or not sizes:
        raise ValueError(f"matryoshka_dims must be a list of widths; received {sizes!r:.80}")
    if max(as_integer("matryoshka_dims", size, 1) for size in sizes) > width:
        raise ValueError(f"matryoshka_dims must be from 1 to {width}; received {sizes}")
    return losses.Matryoshka(loss, sizes)


def check_negatives(examples, encoded):
    """Raise an error if the loss needs negatives and no text can be one."""
    loss = inner_loss(encoded.loss)
    if not isinstance(loss, losses.MultipleNegativesRanking):
        return
    queries = {row[0] for row in examples.texts}
    if len(queries) == 1 and len(examples.texts[0]) < TEXTS_OF_TRIPLET:
        raise ValueError(
            f"{examples.source}: all rows have the same query, {examples.texts[0][0]!r:.80}, so "
            "there are no negatives. Give rows with different queries, hard negatives, or scores"
        )
    if len({text for row in examples.texts for text in row[1:]}) == 1:
        raise ValueError(
            f"{examples.source}: all rows have the same positive, {examples.texts[0][1]!r:.80}, so "
            "there are no negatives. Give rows with different positives, or scores"
        )
    if examples.classes is not None and len(set(examples.classes)) == 1:
        raise ValueError(f"{examples.source}: all rows have one class, so there are no negatives")
