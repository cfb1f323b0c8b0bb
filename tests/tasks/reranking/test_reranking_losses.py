"""Losses of rerankers, held to sentence-transformers and to NumPy."""

import numpy as np
import pytest

from keras_bert import losses

LOGITS = np.array([[2.0, -1.0, 0.5], [0.1, 0.2, 3.0], [-2.0, 1.0, 1.5]], "float32")
RELEVANCE = np.array([[1.0, 0.0, 0.0], [1.0, 0.3, 0.0], [1.0, 0.0, 0.7]], "float32")
ALL = [losses.BinaryRelevance, losses.MultipleNegativesReranking, losses.MarginMSE, losses.ListNet]


def gradient_of(loss, relevance, logits):
    """Return the value of a Keras loss and its gradient."""
    tf = pytest.importorskip("tensorflow")
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        value = loss(relevance, variable)
    return float(value), tape.gradient(value, variable).numpy()


@pytest.mark.parametrize("kind", ALL)
def test_missing_documents_change_nothing(kind):
    loss = kind()
    value, gradient = gradient_of(loss, RELEVANCE[:, :2], LOGITS[:, :2])
    shorter = RELEVANCE.copy()
    shorter[:, 2] = np.nan
    padded, padded_gradient = gradient_of(loss, shorter, LOGITS)
    assert padded == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(padded_gradient[:, :2], gradient, atol=1e-6)
    assert not padded_gradient[:, 2].any()


@pytest.mark.parametrize("kind", ALL)
def test_rows_that_fill_a_batch_have_finite_gradients(kind):
    relevance = np.concatenate([RELEVANCE, np.full((1, 3), np.nan, "float32")])
    logits = np.concatenate([LOGITS, np.zeros((1, 3), "float32")])
    weights = np.array([1, 1, 1, 0], "float32")
    loss = kind(reduction="sum")
    expected = float(loss(RELEVANCE, LOGITS))
    assert float(loss(relevance, logits, weights)) == pytest.approx(expected, rel=1e-6)
    _, gradient = gradient_of(kind(), relevance, logits)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", ALL)
def test_losses_are_rebuilt_from_their_config(kind):
    loss = kind()
    again = kind.from_config(loss.get_config())
    assert float(again(RELEVANCE, LOGITS)) == float(loss(RELEVANCE, LOGITS))


@pytest.mark.peers
@pytest.mark.parametrize("name", ["binary", "margin", "listnet", "multiple_negatives"])
def test_losses_equal_those_of_sentence_transformers(name, monkeypatch):
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import losses as theirs

    class Scorer(CrossEncoder):
        """Gives the logit of a row of LOGITS (the query) and a column (the document)."""

        num_labels = 1
        device = "cpu"

        def __init__(self):
            torch.nn.Module.__init__(self)
            self.logits = torch.nn.Parameter(torch.tensor(LOGITS))

        def preprocess(self, pairs, **options):
            return {"pairs": pairs}

        def forward(self, inputs):
            chosen = [self.logits[int(row), int(column)] for row, column in inputs["pairs"]]
            return {"scores": torch.stack(chosen)[:, None]}

    model = Scorer()
    queries = ["0", "1", "2"]
    columns = [["0"] * 3, ["1"] * 3, ["2"] * 3]
    relevance = torch.tensor(RELEVANCE)
    if name == "binary":
        ours = losses.BinaryRelevance()
        pairs = [(row, column) for row in queries for column in queries]
        first, second = map(list, zip(*pairs, strict=True))
        value = theirs.BinaryCrossEntropyLoss(model)([first, second], relevance.reshape(-1))
    elif name == "margin":
        ours = losses.MarginMSE()
        value = theirs.MarginMSELoss(model)([queries, *columns], relevance)
    elif name == "listnet":
        ours = losses.ListNet()
        value = theirs.ListNetLoss(model)([queries, [["0", "1", "2"]] * 3], list(relevance))
    else:
        ours = losses.MultipleNegativesReranking()
        loss = theirs.MultipleNegativesRankingLoss(model, num_negatives=0)
        monkeypatch.setattr(loss, "get_in_batch_negatives", lambda *_: [])
        value = loss([queries, *columns], relevance)
    value.backward()
    our_value, gradient = gradient_of(ours, RELEVANCE, LOGITS)
    assert our_value == pytest.approx(value.item(), rel=1e-6)
    np.testing.assert_allclose(gradient, model.logits.grad.numpy(), atol=1e-6)
