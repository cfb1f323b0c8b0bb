"""Rows of texts as sequences of token ids, and the losses of sparse embedders."""

import numpy as np

from keras_bert import losses
from keras_bert.runtime.escaping import shown
from keras_bert.tasks.embedding.loss_choice import inner_loss
from keras_bert.tasks.embedding.rows import EncodedRows
from keras_bert.tasks.embedding.task import EmbeddingOptions
from keras_bert.tasks.sparse_embedding.inverted_index import as_rows

# Name of the loss -> column of the data that it needs.
LOSSES = {"multiple_negatives_ranking": "texts", "margin_mse": "document_scores"}
_WARMUP = 1 / 3  # fraction of the batches in which the factor of the regularization rises


class SparseRows(EncodedRows):
    """Tokenized rows of texts.

    The last column of the targets is the factor of the regularization. It is 0 for rows that fill a
    batch.
    """

    def __init__(self, tokenizer, rows, max_length, examples=None, loss=None, sampling=None):
        options = None if sampling is None else EmbeddingOptions(sampling=sampling)
        super().__init__(tokenizer, rows, max_length, examples, loss, options)
        if self.targets is not None:
            factors = np.ones((len(rows), 1))
            self.targets = np.concatenate([self.targets, factors], axis=1, dtype=np.float32)

    def compact(self, output):
        return as_rows(output)

    def stack_outputs(self, outputs, rows, length):
        return np.stack([output.toarray() for output in outputs])

    def share_loss(self, dev):
        """Use this loss for dev data with targets of the same kind."""
        if dev.targets is not None and type(dev.loss.loss) is type(self.loss.loss):
            dev.loss = self.loss

    def filler_targets(self, targets):
        targets = targets.copy()
        targets[:, -1] = 0
        return targets

    def at_step(self, batch, step, steps):
        """Return a batch with the factor of the regularization at a step: it rises as a square.

        Source: UKPLab/sentence-transformers, sparse_encoder/callbacks/splade_callbacks.py.
        """
        inputs, targets, weights = batch
        rising = max(int(steps * _WARMUP), 1)
        targets = targets.copy()
        targets[:, -1] *= min(step / rising, 1) ** 2
        return inputs, targets, weights


def make_loss(options, examples):
    """Return the `losses.Splade` for `SparseOptions` and the data."""
    kind = "texts" if examples.document_scores is None else "document_scores"
    for name in ("scores", "classes", "vectors"):
        if getattr(examples, name) is not None:
            raise ValueError(
                f"{examples.source} has {name}, which sparse embedders do not learn. Give rows of "
                "a query, a document and negatives"
            )
    loss = options.loss
    if loss is None:
        loss = next(name for name in LOSSES if LOSSES[name] == kind)
    names = ("document_regularizer_weight", "query_regularizer_weight")
    weights = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if isinstance(loss, losses.Splade) and weights:
        raise ValueError(f"give {next(iter(weights))} to losses.Splade, which is the loss")
    if loss == "multiple_negatives_ranking":
        loss = losses.Splade(**weights)
    elif loss == "margin_mse":
        loss = losses.Splade(losses.MarginMSE(), **weights)
    if not isinstance(loss, losses.Splade):
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or a keras_bert.losses.Splade; received "
            f"{shown(loss)}"
        )
    needs = LOSSES[_name_of(loss)]
    if needs != kind:
        raise ValueError(
            f"the loss {_name_of(loss)} needs rows with {needs}; {examples.source} has {kind}. "
            "A reranker's as_teacher makes document_scores"
        )
    return loss


def _name_of(loss):
    return "margin_mse" if isinstance(inner_loss(loss), losses.MarginMSE) else next(iter(LOSSES))
