"""Losses of sparse embedders, held to NumPy and to sentence-transformers."""

import numpy as np
import pytest

from keras_bert import losses
from keras_bert.runtime.gradients import value_and_gradient

GENERATOR = np.random.default_rng(0)
# Weights of three rows of a query and three documents.
VECTORS = np.maximum(GENERATOR.normal(size=(3, 4, 11)), 0).astype(np.float32)
IDS = np.arange(12).reshape(3, 4)
SCORES = np.array([[3.0, 1.0, -2.0], [0.5, 0.0, 0.1], [2.0, 2.5, 1.0]], np.float32)
WEIGHTS = {"document_regularizer_weight": 0.3, "query_regularizer_weight": 0.7}


def targets(of_loss, factor=1.0):
    """Return targets with the factor of the regularization."""
    return np.column_stack([of_loss, np.full(len(of_loss), factor)]).astype(np.float32)


def test_regularization_is_the_square_of_the_mean_weights():
    plain = losses.MultipleNegativesRanking(scale=1, similarity="dot")
    base = float(plain(IDS, VECTORS))
    flops = 0.7 * (VECTORS[:, 0].mean(axis=0) ** 2).sum()
    flops += 0.3 * (VECTORS[:, 1:].reshape(9, 11).mean(axis=0) ** 2).sum()
    loss = losses.Splade(**WEIGHTS)
    for factor in (0, 0.25, 1):
        value = float(loss(targets(IDS, factor), VECTORS))
        assert value == pytest.approx(base + factor * flops, rel=1e-5)


def test_losses_are_rebuilt_from_their_config():
    for loss, of_loss in (
        (losses.Splade(**WEIGHTS), IDS),
        (losses.Splade(losses.MarginMSE()), SCORES),
    ):
        again = losses.Splade.from_config(loss.get_config())
        assert float(again(targets(of_loss), VECTORS)) == float(loss(targets(of_loss), VECTORS))


def test_other_losses_are_rejected():
    with pytest.raises(ValueError, match="loss must be losses.MultipleNegativesRanking or"):
        losses.Splade(losses.CoSENT())
    with pytest.raises(ValueError, match="similarity must be one of cosine, dot"):
        losses.MultipleNegativesRanking(similarity="euclidean")


@pytest.mark.peers
@pytest.mark.parametrize("name", ["multiple_negatives", "margin"])
def test_losses_equal_those_of_sentence_transformers(name):
    import torch
    from sentence_transformers.sparse_encoder import losses as theirs

    class Encoder(torch.nn.Module):
        """Stands for a `SparseEncoder`, which the losses only keep."""

    variable = torch.nn.Parameter(torch.tensor(VECTORS))
    if name == "margin":
        ours = losses.Splade(losses.MarginMSE(), **WEIGHTS)
        inner = theirs.SparseMarginMSELoss(Encoder())
        labels = torch.tensor(SCORES)
        of_loss = SCORES
    else:
        ours = losses.Splade(**WEIGHTS)
        inner = theirs.SparseMultipleNegativesRankingLoss(Encoder())
        labels = None
        of_loss = IDS
    flops = theirs.FlopsLoss(Encoder())
    columns = [variable[:, index] for index in range(4)]
    value = inner.compute_loss_from_embeddings(columns, labels)
    value = value + 0.3 * flops.compute_loss_from_embeddings(torch.cat(columns[1:]))
    value = value + 0.7 * flops.compute_loss_from_embeddings(columns[0])
    value.backward()
    our_value, gradient = value_and_gradient(
        lambda vectors: ours(targets(of_loss), vectors), VECTORS
    )
    assert float(our_value) == pytest.approx(value.item(), rel=1e-5)
    np.testing.assert_allclose(np.asarray(gradient), variable.grad.numpy(), atol=1e-5)
