"""The loss of embeddings: by name, by default for the kind of data, and what data it needs."""

import warnings

from keras_bert import losses
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.named_losses import NamedLoss, choose

LOSSES = {
    "multiple_negatives_ranking": NamedLoss(losses.MultipleNegativesRanking, "texts"),
    "triplet": NamedLoss(losses.Triplet, "texts"),
    "cosent": NamedLoss(losses.CoSENT, "scores"),
    "cosine_similarity": NamedLoss(losses.CosineSimilarity, "scores", -1, 1),
    "contrastive": NamedLoss(losses.Contrastive, "scores", 0, 1),
    "distillation": NamedLoss(losses.Distillation, "vectors"),
}  # the first one for each kind of data is the default


def inner_loss(loss):
    """Return the loss that a `Matryoshka` or a `Splade` applies, or the loss itself."""
    return loss.loss if isinstance(loss, (losses.Matryoshka, losses.Splade)) else loss


def make_loss(options, examples):
    """Return the Keras loss for `EmbeddingOptions` and the data."""
    if examples.document_scores is not None:
        raise ValueError(
            f"{examples.source} has scores of several documents per row. Train a sparse embedder, "
            "task='sparse_embedding', or a reranker"
        )
    kind = "texts"
    if examples.scores is not None:
        kind = "scores"
    elif examples.vectors is not None:
        kind = "vectors"
    loss = options.loss
    if loss is None:
        loss = next(name for name, choice in LOSSES.items() if choice.needs == kind)
    name, loss = choose(loss, LOSSES, advice=". For losses.Matryoshka, give matryoshka_dims")
    if LOSSES[name].needs != kind:
        raise ValueError(
            f"the loss {name} needs rows with {LOSSES[name].needs}; {examples.source} has {kind}. "
            "Leave out loss to use the default"
        )
    if name == "triplet" and len(examples.texts[0]) < 3:
        raise ValueError(
            f"the loss triplet needs rows of three texts; {examples.source} has rows of "
            f"{len(examples.texts[0])}. Add hard negatives"
        )
    if kind == "scores":
        _check_scores(name, examples)
    if options.matryoshka_dims is None:
        return loss
    return losses.Matryoshka(loss, options.matryoshka_dims)


def _check_scores(name, examples):
    """Raise an error, or warn, if a loss is not made for the scores."""
    low = LOSSES[name].lowest
    high = LOSSES[name].highest
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
