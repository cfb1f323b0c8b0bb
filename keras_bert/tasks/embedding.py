"""Embeddings: vectors whose similarity says how similar texts are.

Source: Reimers and Gurevych (2019), Sentence-BERT.
"""

import numpy as np

from keras_bert import heads, losses, search
from keras_bert.data import packing
from keras_bert.data.examples import Examples
from keras_bert.runtime.arguments import as_integer
from keras_bert.tasks.classification import EncodedTexts

HEADS = ("embedder",)
MAX_LENGTH = 128
LOSSES = {
    "multiple_negatives_ranking": losses.MultipleNegativesRanking,
    "cosine_similarity": losses.CosineSimilarity,
    "cosent": losses.CoSENT,
    "triplet": losses.Triplet,
    "contrastive": losses.Contrastive,
}
_OF_SCORES = ("cosine_similarity", "cosent", "contrastive")
_TEXTS_OF_TRIPLET = 3
_TOP = 10  # results of a query that are scored


def build(encoder, train):
    """Build a model of `heads.embedder` for `EmbeddingExamples`."""
    return heads.embedder(encoder)


def model_of_rows(model):
    """Return the model that is trained and scored, for rows of texts; with the same weights."""
    return model if len(model.output_shape) == 3 else heads.siamese(model)


def compile_options(model, encoded):
    """Return the loss as an argument of `keras.Model.compile`."""
    return {"loss": encoded.loss}


class EncodedRows:
    """Tokenized rows of texts.

    Attributes:
        lengths: Length of the longest text of each row, int (n,).
        truncated: Number of truncated texts.
        without_tokens: Number of texts without tokens.
        loss: The Keras loss for the targets.
        texts: The `EncodedTexts` of all rows, one row after the other.
        texts_per_row: Number of texts of a row.
        targets: See `batch`.
        gradient_caching: True if the rows of all batches of an optimizer step are compared.
    """

    gradient_caching = False

    def __init__(self, preprocessor, examples, max_length, loss):
        self.max_length, self.loss = max_length, loss
        self.texts_per_row = len(examples.texts[0])
        texts = [text for row in examples.texts for text in row]
        self.texts = EncodedTexts(preprocessor, Examples(texts), max_length)
        self.lengths = self.texts.lengths.reshape(-1, self.texts_per_row).max(axis=1)
        self.truncated = self.texts.truncated
        (self.without_tokens,) = self.texts.empty
        if examples.scores is not None:
            self.targets = np.array(examples.scores, np.float32)
        else:
            numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
            self.targets = np.array(
                [[numbers[text] for text in row[:2]] for row in examples.texts], np.int32
            )

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, length):
        """Return inputs, a dict of int32 (batch, texts, length), targets and weights (batch,).

        The targets are float32 (batch,) scores, or int32 (batch, 2): the numbers of the first two
        texts, equal for equal texts.
        """
        inputs, _, _ = self.texts.batch(packing.texts_of_rows(rows, self.texts_per_row), length)
        inputs = {
            key: value.reshape(len(rows), self.texts_per_row, length)
            for key, value in inputs.items()
        }
        return inputs, self.targets[rows], np.ones(len(rows), np.float32)


def encode(
    model, examples, max_length, *, loss=None, matryoshka_dims=None, gradient_caching=False
):
    """Encode `EmbeddingExamples`, truncated to `max_length`.

    `loss` is a key of `LOSSES`, by default `"cosent"` for scored pairs and else
    `"multiple_negatives_ranking"`. `matryoshka_dims` are widths for `losses.Matryoshka`.
    """
    has_scores = examples.scores is not None
    loss = loss or ("cosent" if has_scores else "multiple_negatives_ranking")
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}; received {loss!r:.80}")
    if has_scores != (loss in _OF_SCORES):
        kind = "scored pairs" if loss in _OF_SCORES else "rows without scores"
        raise ValueError(f"the loss {loss} needs {kind}; {examples.source} has others")
    if loss == "triplet" and len(examples.texts[0]) < _TEXTS_OF_TRIPLET:
        raise ValueError(f"the loss triplet needs rows of three texts; see {examples.source}")
    made = LOSSES[loss]()
    if matryoshka_dims is not None:
        width = model.output_shape[-1]
        if not isinstance(matryoshka_dims, (list, tuple)) or not matryoshka_dims:
            raise ValueError(f"matryoshka_dims must be a list; received {matryoshka_dims!r:.80}")
        if max(as_integer("matryoshka_dims", size, 1) for size in matryoshka_dims) > width:
            raise ValueError(
                f"matryoshka_dims must be from 1 to {width}; received {matryoshka_dims}"
            )
        made = losses.Matryoshka(made, matryoshka_dims)
    encoded = EncodedRows(heads.find_encoder(model).preprocessor, examples, max_length, made)
    encoded.gradient_caching = gradient_caching
    return encoded


def decode(model, examples, encoded, outputs):
    """Return the embeddings of each row, float32 (texts, width)."""
    return [np.asarray(vectors, np.float32) for vectors in outputs]


def score(model, examples, answers):
    """Return the metrics of the embeddings.

    For scores: the rank correlation `spearman`, and `pearson`, of the cosine similarities. Without
    scores: each first text searches among the different other texts: `mrr@10`, the mean of 1 / rank
    of the first positive, `ndcg@10`, and `recall@1`, whether a positive is found first.
    """
    if examples.scores is not None:
        from scipy import stats

        pairs = np.array(answers)
        first, second = search.unit_length(pairs[:, 0]), search.unit_length(pairs[:, 1])
        cosine = (first * second).sum(axis=1)
        return {
            "spearman": _correlation(stats.spearmanr, cosine, examples.scores),
            "pearson": _correlation(stats.pearsonr, cosine, examples.scores),
        }
    corpus: dict[str, np.ndarray] = {}
    positives: dict[str, set] = {}
    queries = {}
    for row, vectors in zip(examples.texts, answers, strict=True):
        queries[row[0]] = vectors[0]
        corpus |= zip(row[1:], vectors[1:], strict=True)
        positives.setdefault(row[0], set()).add(row[1])
    numbers = {text: number for number, text in enumerate(corpus)}
    relevant = [{numbers[text] for text in positives[query]} for query in queries]
    found, _ = search.top_k(np.array(list(queries.values())), np.array(list(corpus.values())), _TOP)
    return retrieval_metrics(found, relevant)


def _correlation(function, first, second):
    value = float(function(first, second).statistic) if len(first) > 1 else 0.0
    return value if np.isfinite(value) else 0.0  # of constants


def retrieval_metrics(found, relevant):
    """Return `mrr@10`, `ndcg@10`, `recall@10` and `recall@1`, means over the queries.

    Args:
        found: Numbers of the documents found for each query, the best one first, int (n, k).
        relevant: For each query, the set of the numbers of its relevant documents.

    Source: Manning et al. (2008), Introduction to Information Retrieval, section 8.4.

    Example:

    >>> retrieval_metrics(np.array([[3, 1]]), [{1}])["mrr@10"]
    0.5
    """
    discount = 1 / np.log2(np.arange(_TOP) + 2)
    rows = []
    for documents, wanted in zip(found, relevant, strict=True):
        hits = np.array([document in wanted for document in documents[:_TOP]], bool)
        ideal = discount[: min(len(wanted), _TOP)].sum()
        rows.append(
            (
                1 / (hits.argmax() + 1) if hits.any() else 0.0,
                (discount[: len(hits)] * hits).sum() / ideal,
                hits.sum() / len(wanted),
                hits[:1].sum() / len(wanted),
            )
        )
    means = np.mean(rows, axis=0)
    names = ("mrr@10", "ndcg@10", "recall@10", "recall@1")
    return {name: float(value) for name, value in zip(names, means, strict=True)}


def metric_names(model, examples):
    """Return the names of the metrics of `score`, the main one first."""
    if examples.scores is not None:
        return ("spearman", "pearson")
    return ("mrr@10", "ndcg@10", "recall@10", "recall@1")
