"""The loss of embeddings: by name, by default for the kind of data, and what data it needs."""

import warnings

import numpy as np

from keras_bert import losses
from keras_bert.runtime.warn import level_of_caller

LOSSES = {
    "multiple_negatives_ranking": losses.MultipleNegativesRanking,
    "cosine_similarity": losses.CosineSimilarity,
    "cosent": losses.CoSENT,
    "triplet": losses.Triplet,
    "contrastive": losses.Contrastive,
    "distillation": losses.Distillation,
}
# The data that a loss needs; other losses need rows of texts without scores.
_NEEDS = {
    "cosine_similarity": "scores", "cosent": "scores", "contrastive": "scores",
    "distillation": "vectors",
}  # fmt: skip
_DEFAULTS = {
    "texts": "multiple_negatives_ranking", "scores": "cosent", "vectors": "distillation"
}  # fmt: skip
_RANGES = {"cosine_similarity": (-1, 1), "contrastive": (0, 1)}  # of scores
TEXTS_OF_TRIPLET = 3


def inner_loss(loss):
    """Return the loss that a `Matryoshka` applies, or the loss itself."""
    return loss.loss if isinstance(loss, losses.Matryoshka) else loss


def make_loss(loss, examples):
    """Return the Keras loss, by default the one for the kind of data."""
    kind = "texts"
    if examples.scores is not None:
        kind = "scores"
    elif examples.vectors is not None:
        kind = "vectors"
    loss = _DEFAULTS[kind] if loss is None else loss
    if isinstance(loss, str) and loss in LOSSES:
        loss = LOSSES[loss]()
    name = next((name for name, cls in LOSSES.items() if isinstance(loss, cls)), None)
    if name is None:
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or such a loss of keras_bert.losses; "
            f"received {loss!r:.80}. For losses.Matryoshka, give matryoshka_dims"
        )
    needed = _NEEDS.get(name, "texts")
    if needed != kind:
        raise ValueError(
            f"the loss {name} needs rows with {needed}; {examples.source} has {kind}. Leave out "
            "loss to use the default"
        )
    if name == "triplet" and len(examples.texts[0]) < TEXTS_OF_TRIPLET:
        raise ValueError(
            f"the loss triplet needs rows of three texts; {examples.source} has rows of "
            f"{len(examples.texts[0])}. Add hard negatives"
        )
    if kind == "scores":
        _check_scores(name, examples)
    return loss


def _check_scores(name, examples):
    """Raise an error, or warn, if a loss is not made for the scores."""
    low, high = _RANGES.get(name, (-np.inf, np.inf))
    wrong = [score for score in examples.scores if not low <= score <= high]
    if wrong:
        raise ValueError(
            f"the loss {name} needs scores from {low} to {high}; {examples.source} has {wrong[0]}. "
            "Scale the scores, or use the loss cosent"
        )
    others = [score for score in examples.scores if score not in (0, 1)]
    if name == "contrastive" and others:
        warnings.warn(
            f"{examples.source}: the loss contrastive is for the scores 0 and 1; {len(others)} of "
            f"{len(examples)} scores are between them, such as {others[0]}. Use cosent or "
            "cosine_similarity",
            stacklevel=level_of_caller(),
        )
    if name == "cosent" and len(examples) > 1 and len(set(examples.scores)) == 1:
        raise ValueError(
            f"{examples.source}: all scores are {examples.scores[0]}, so there is nothing to rank. "
            "Give pairs with different scores"
        )


def matryoshka(loss, dims, width):
    """Return the loss for the first numbers of vectors with a width, too."""
    if not isinstance(dims, (list, tuple)) or max(dims, default=0) > width:
        raise ValueError(
            f"matryoshka_dims must be a list of widths, each at most {width}; received {dims!r:.80}"
        )
    return losses.Matryoshka(loss, dims)


def check_negatives(examples, encoded):
    """Raise an error if the loss needs negatives and no text can be one."""
    if not isinstance(inner_loss(encoded.loss), losses.MultipleNegativesRanking):
        return
    queries = {row[0] for row in examples.texts}
    others = {text for row in examples.texts for text in row[1:]}
    has_one_query = len(queries) == 1 and len(examples.texts[0]) == 2
    has_one_class = examples.classes is not None and len(set(examples.classes)) == 1
    if has_one_query or has_one_class or len(others) == 1:
        raise ValueError(
            f"{examples.source}: all rows have the same query, the same positive or the same "
            "class, so there are no negatives. Give different rows, hard negatives, or scores"
        )
