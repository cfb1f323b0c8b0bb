"""Losses for embeddings, sparse embeddings and rerankers, as plain Keras losses.

For embeddings, `y_pred` are the embeddings of rows of texts, floats (batch, texts, width), as from
`heads.siamese`. Losses with the cosine scale the embeddings to length 1. The others use them as
they are.

Defaults are those of sentence-transformers, except for `Triplet`, which uses the cosine distance
and a margin of 0.5 (there: the Euclidean distance and 5). `Distillation` has no counterpart there.

For sparse embedders, `y_pred` are the sparse vectors of such rows, floats (batch, texts, vocab).

For rerankers, `y_pred` are the logits of lists of documents, floats (batch, documents), and
`y_true` is the relevance of each document, of the same shape. It is NaN where a list is shorter.
"""

import keras
from keras import ops

from keras_bert.layers.pooling import unit_length
from keras_bert.runtime import distribution
from keras_bert.runtime.arguments import as_integer, as_number, check_one_of
from keras_bert.runtime.escaping import shown

_PACKAGE = "keras_bert"
_MASKED = -1e9  # a score that does not count


class _Loss(keras.losses.Loss):
    """Base class of the losses: by default the mean over the rows, each times its weight."""

    options: tuple[str, ...] = ()  # further arguments of the constructor, which are attributes

    def __init__(self, name, reduction="sum_over_batch_size", dtype=None):
        # Lower precision would round the numbers of texts, and scores, to equal ones.
        super().__init__(name=name, reduction=reduction, dtype=dtype or "float32")

    def get_config(self):
        options = {name: getattr(self, name) for name in self.options}
        return {"name": self.name, "reduction": self.reduction, "dtype": self.dtype, **options}


@keras.saving.register_keras_serializable(package=_PACKAGE)
class MultipleNegativesRanking(_Loss):
    """Cross-entropy of the positive of each query against all candidates of the batch.

    The candidates are the positives and the hard negatives of all rows, on all replicas. A text
    that occurs several times is one candidate. Another positive of the same query is not used as a
    negative.

    Source: Henderson et al. (2017), Efficient natural language response suggestion, section 4.4.

    Args:
        scale: Factor of the similarities.
        symmetric: If True, add the loss of finding the query of each positive.
        similarity: `"cosine"` or `"dot"`.
        name, reduction, dtype: See `keras.losses.Loss`.

    Raises:
        ValueError: If the similarity is unknown.

    Example:

    >>> loss = MultipleNegativesRanking()
    >>> embeddings = ops.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> float(loss(ops.array([[0, 0], [1, 1]]), embeddings)) < 1e-6
    True
    """

    options = ("scale", "symmetric", "similarity")

    def __init__(
        self,
        scale=20.0,
        symmetric=False,
        similarity="cosine",
        name="multiple_negatives_ranking",
        **options,
    ):
        super().__init__(name, **options)
        check_one_of("similarity", similarity, ("cosine", "dot"))
        self.scale = scale
        self.symmetric = symmetric
        self.similarity = similarity

    def call(self, y_true, y_pred):
        """Return the loss of each row, (batch,).

        `y_true` has the id of each text, int (batch, texts). Equal texts have equal ids. The ids
        are below 2**24, since Keras converts them to float32. With classes, a further column has
        the id of the class of each row. A text is no negative for other rows of its class.
        """
        select, y_true, y_pred = distribution.gather_replicas(ops.cast(y_true, "int32"), y_pred)
        return select(self._loss_per_row(y_true, y_pred))

    def _loss_per_row(self, y_true, y_pred):
        """Return the loss of each row, (batch,). The arguments hold the rows of all replicas."""
        vectors = unit_length(y_pred) if self.similarity == "cosine" else y_pred
        texts_per_row = ops.shape(y_pred)[1]
        query_ids = y_true[:, 0]
        positive_ids = y_true[:, 1]
        classes = y_true[:, -1]
        negative_ids = ops.reshape(y_true[:, 2:texts_per_row], (-1,))
        candidate_ids = ops.concatenate([positive_ids, negative_ids], axis=0)
        has_classes = ops.shape(y_true)[1] > texts_per_row
        query = vectors[:, 0]
        positive = vectors[:, 1]
        negatives = ops.reshape(vectors[:, 2:], (-1, vectors.shape[-1]))
        candidates = ops.concatenate([positive, negatives], axis=0)  # (candidates, width)
        scores = self.scale * ops.matmul(query, ops.transpose(candidates))  # (batch, candidates)
        groups = ops.where(has_classes, classes, query_ids)
        total = _cross_entropy(scores, groups, positive_ids, candidate_ids)
        if self.symmetric:
            scores = self.scale * ops.matmul(positive, ops.transpose(query))  # (batch, batch)
            groups = ops.where(has_classes, classes, positive_ids)
            total = (total + _cross_entropy(scores, groups, query_ids, query_ids)) / 2
        return total


@keras.saving.register_keras_serializable(package=_PACKAGE)
class CosineSimilarity(_Loss):
    """Squared difference of the cosine similarity of a pair and its score.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3.

    Args: See `keras.losses.Loss`.

    Example:

    >>> embeddings = ops.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> float(CosineSimilarity()(ops.array([0.5]), embeddings))
    0.25
    """

    def __init__(self, name="cosine_similarity", **options):
        super().__init__(name, **options)

    def call(self, y_true, y_pred):
        return ops.square(_cosine(y_pred) - ops.cast(ops.reshape(y_true, (-1,)), y_pred.dtype))


@keras.saving.register_keras_serializable(package=_PACKAGE)
class CoSENT(_Loss):
    """Ranks pairs: a pair with a higher score should have a higher cosine similarity.

    The loss is the logarithm of 1 plus the sum of exp(scale * (cosine of the pair with the lower
    score - cosine of the other)) over every two pairs of the batch whose scores differ. Rows
    that only fill the last batch have the score NaN, and are left out.

    Source: Su (2022), CoSENT, kexue.fm/archives/8847.

    Args:
        scale: Factor of the cosine similarities.
        name, reduction, dtype: See `keras.losses.Loss`.

    Example:

    >>> embeddings = ops.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> float(CoSENT()(ops.array([1.0, 0.0]), embeddings)) < 1e-6
    True
    """

    options = ("scale",)

    def __init__(self, scale=20.0, name="cosent", **options):
        super().__init__(name, **options)
        self.scale = scale

    def call(self, y_true, y_pred):
        score = ops.cast(ops.reshape(y_true, (-1,)), y_pred.dtype)
        select, score, y_pred = distribution.gather_replicas(score, y_pred)
        cosine = self.scale * _cosine(y_pred)
        difference = cosine[:, None] - cosine  # (batch, batch)
        wrong = ops.where(score[:, None] < score, difference, -1e9)
        wrong = ops.concatenate([ops.reshape(wrong, (-1,)), ops.zeros((1,), wrong.dtype)], axis=0)
        return ops.broadcast_to(ops.logsumexp(wrong), ops.shape(select(score)))


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Triplet(_Loss):
    """The positive should be nearer to the anchor than the negative, by a margin.

    Source: Schroff et al. (2015), FaceNet, equation 3, with the cosine distance by default.

    Args:
        margin: The loss is 0 if the negative is farther from the anchor than the positive by at
            least this.
        distance: `"cosine"` (1 - the cosine similarity), `"euclidean"` or `"manhattan"`. The last
            two compare the vectors as they are, not scaled to length 1.
        name, reduction, dtype: See `keras.losses.Loss`.

    Raises:
        ValueError: If the distance is unknown.

    Example:

    >>> embeddings = ops.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    >>> float(Triplet(margin=0.5)(ops.array([0]), embeddings))
    0.0
    """

    DISTANCES = ("cosine", "euclidean", "manhattan")
    options = ("margin", "distance")

    def __init__(self, margin=0.5, distance="cosine", name="triplet", **options):
        super().__init__(name, **options)
        check_one_of("distance", distance, self.DISTANCES)
        self.margin = margin
        self.distance = distance

    def call(self, y_true, y_pred):
        near = self._distance(y_pred, 0, 1)
        far = self._distance(y_pred, 0, 2)
        return ops.maximum(near - far + self.margin, 0.0)

    def _distance(self, y_pred, first, second):
        """Return the distance of two texts of each row, (batch,)."""
        if self.distance == "cosine":
            return 1 - _cosine(y_pred, first, second)
        difference = y_pred[:, first] - y_pred[:, second]
        if self.distance == "manhattan":
            return ops.sum(ops.abs(difference), axis=-1)
        # Clip before the square root, which has no gradient at 0.
        return ops.sqrt(ops.maximum(ops.sum(ops.square(difference), axis=-1), 1e-24))


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Contrastive(_Loss):
    """Pulls pairs of the score 1 together, and pairs of the score 0 apart up to a margin.

    Source: Hadsell et al. (2006), Dimensionality reduction by learning an invariant mapping, with
    the cosine distance.

    Args:
        margin: Distance beyond which a pair of the score 0 has no loss.
        name, reduction, dtype: See `keras.losses.Loss`.

    Example:

    >>> embeddings = ops.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> float(Contrastive()(ops.array([0.0]), embeddings)), float(Contrastive()([1.0], embeddings))
    (0.0, 0.5)
    """

    options = ("margin",)

    def __init__(self, margin=0.5, name="contrastive", **options):
        super().__init__(name, **options)
        self.margin = margin

    def call(self, y_true, y_pred):
        distance = 1 - _cosine(y_pred)
        same = ops.cast(ops.reshape(y_true, (-1,)), distance.dtype)
        apart = ops.square(ops.maximum(self.margin - distance, 0.0))
        return (same * ops.square(distance) + (1 - same) * apart) / 2


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Distillation(_Loss):
    """1 - the cosine similarity of an embedding and the vector of a teacher.

    Source: Reimers and Gurevych (2020), Making monolingual sentence embeddings multilingual using
    knowledge distillation, section 2, with the cosine distance.

    Args: See `keras.losses.Loss`.

    Example:

    >>> float(Distillation()(ops.array([[0.0, 1.0]]), ops.array([[[1.0, 0.0]]])))
    1.0
    """

    def __init__(self, name="distillation", **options):
        super().__init__(name, **options)

    def call(self, y_true, y_pred):
        """Return the loss of each row; `y_true` are the vectors, floats (batch, width)."""
        wanted = unit_length(ops.cast(y_true, y_pred.dtype)[:, : y_pred.shape[-1]])
        return 1 - ops.sum(unit_length(y_pred[:, 0]) * wanted, axis=-1)


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Matryoshka(_Loss):
    """Applies a loss to the first numbers of the embeddings, for several widths.

    Source: Kusupati et al. (2022), Matryoshka representation learning.

    Args:
        loss: Another loss of this module.
        dims: Widths, such as `[384, 128, 64]`.
        weights: Weight of the loss of each width. Default: 1 for each.
        name, reduction, dtype: See `keras.losses.Loss`.

    Raises:
        ValueError: If a width is not an integer of at least 1, or there is not a weight for each
            width. In a call, if a width is above that of the embeddings.

    Example:

    >>> embeddings = ops.array([[[1.0, 0.0], [1.0, 5.0]]])
    >>> float(Matryoshka(CosineSimilarity(), dims=[1])(ops.array([1.0]), embeddings))
    0.0
    """

    def __init__(self, loss, dims, weights=None, name="matryoshka", **options):
        super().__init__(name, **options)
        self.loss = loss
        self.dims = tuple(as_integer("dims", size, 1) for size in dims)
        self.weights = tuple(weights or [1.0] * len(self.dims))
        if len(self.weights) != len(self.dims) or not self.dims:
            raise ValueError(
                f"weights must have one number for each of dims, {self.dims}; received "
                f"{self.weights}"
            )

    def call(self, y_true, y_pred):
        width = y_pred.shape[-1]
        if width is not None and max(self.dims) > width:
            raise ValueError(
                f"dims must be at most {width}, the width of the embeddings; received {self.dims}"
            )
        return sum(
            weight * self.loss.call(y_true, y_pred[:, :, :size])
            for size, weight in zip(self.dims, self.weights, strict=True)
        )

    def get_config(self):
        loss = keras.saving.serialize_keras_object(self.loss)
        return {**super().get_config(), "loss": loss, "dims": self.dims, "weights": self.weights}

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"loss": keras.saving.deserialize_keras_object(config["loss"])})


@keras.saving.register_keras_serializable(package=_PACKAGE)
class BinaryRelevance(_Loss):
    """Binary cross-entropy of the relevance of each document, from 0 to 1.

    Source: Nogueira and Cho (2019), Passage re-ranking with BERT, equation 1.

    Args: See `keras.losses.Loss`.

    Example:

    >>> round(float(BinaryRelevance()(ops.array([[1.0, 0.0]]), ops.array([[0.0, 0.0]]))), 3)
    0.693
    """

    def __init__(self, name="binary_cross_entropy", **options):
        super().__init__(name, **options)

    def call(self, y_true, y_pred):
        exists, relevance, logits = _existing(y_true, y_pred)
        # log(1 + exp(x)) - x * relevance
        losses = ops.softplus(logits) - logits * relevance
        return _mean_of_existing(losses, exists)


@keras.saving.register_keras_serializable(package=_PACKAGE)
class MultipleNegativesReranking(_Loss):
    """Cross-entropy of the first document of each list against the others.

    The scores are the sigmoids of the logits, times a factor.

    Source: Henderson et al. (2017), Efficient natural language response suggestion, section 4.4;
    with a sigmoid as in sentence-transformers.

    Args:
        scale: Factor of the scores.
        name, reduction, dtype: See `keras.losses.Loss`.

    Example:

    >>> loss = MultipleNegativesReranking()
    >>> float(loss(ops.array([[1.0, 0.0]]), ops.array([[9.0, -9.0]]))) < 1e-4
    True
    """

    options = ("scale",)

    def __init__(self, scale=10.0, name="multiple_negatives", **options):
        super().__init__(name, **options)
        self.scale = scale

    def call(self, y_true, y_pred):
        exists, _, logits = _existing(y_true, y_pred)
        scores = ops.where(exists, self.scale * ops.sigmoid(logits), _MASKED)
        return ops.logsumexp(scores, axis=1) - scores[:, 0]


@keras.saving.register_keras_serializable(package=_PACKAGE)
class MarginMSE(_Loss):
    """Squared difference of the margins of a model and of its teacher.

    A margin is the score of the first document minus that of another one.

    Source: Hofstätter et al. (2020), Improving efficient neural ranking models with
    cross-architecture knowledge distillation, equation 2.

    Args: See `keras.losses.Loss`.

    Example:

    >>> float(MarginMSE()(ops.array([[5.0, 2.0]]), ops.array([[1.0, 0.0]])))
    4.0
    """

    def __init__(self, name="margin_mse", **options):
        super().__init__(name, **options)

    def call(self, y_true, y_pred):
        exists, scores, logits = _existing(y_true, y_pred)
        error = (logits[:, :1] - logits[:, 1:]) - (scores[:, :1] - scores[:, 1:])
        return _mean_of_existing(ops.square(error), exists[:, 1:])


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Splade(_Loss):
    """A loss of sparse vectors, with the FLOPS regularization that makes most weights 0.

    The regularization is the sum of the squares of the mean weight of each term, once for the
    queries of a batch and once for its documents.

    Source: Formal et al. (2021), SPLADE v2, sections 3.1 and 3.2; Paria et al. (2020), Minimizing
    FLOPs to learn efficient sparse representations.

    Args:
        loss: `MultipleNegativesRanking(scale=1, similarity="dot")`, which is the default, or
            `MarginMSE()`, which compares the dot products with the scores of a teacher.
        document_regularizer_weight: Factor of the regularization of the documents.
        query_regularizer_weight: Factor of the regularization of the queries.
        name, reduction, dtype: See `keras.losses.Loss`.

    Raises:
        ValueError: If the loss is another one.

    Example:

    >>> loss = Splade(MarginMSE(), document_regularizer_weight=0.5, query_regularizer_weight=0)
    >>> vectors = ops.array([[[1.0, 0.0], [2.0, 0.0], [0.0, 2.0]]])
    >>> float(loss(ops.array([[2.0, 0.0, 1.0]]), vectors))
    1.0
    """

    options = ("document_regularizer_weight", "query_regularizer_weight")

    def __init__(
        self,
        loss=None,
        document_regularizer_weight=3e-5,
        query_regularizer_weight=5e-5,
        name="splade",
        **options,
    ):
        super().__init__(name, **options)
        if loss is None:
            loss = MultipleNegativesRanking(scale=1.0, similarity="dot")
        if not isinstance(loss, (MultipleNegativesRanking, MarginMSE)):
            raise ValueError(
                "loss must be losses.MultipleNegativesRanking or losses.MarginMSE; received "
                f"{shown(loss)}"
            )
        weights = {
            "document_regularizer_weight": document_regularizer_weight,
            "query_regularizer_weight": query_regularizer_weight,
        }
        for name, weight in weights.items():
            if as_number(name, weight) < 0:
                raise ValueError(f"{name} must be at least 0; received {shown(weight)}")
        self.loss = loss
        self.document_regularizer_weight = document_regularizer_weight
        self.query_regularizer_weight = query_regularizer_weight

    def call(self, y_true, y_pred):
        """Return the loss of each row, (batch,).

        The last column of `y_true` is a factor of the regularization, which rises from 0 to 1 in
        training. The regularization leaves out rows whose factor is 0. The other columns are the
        targets of `loss`.
        """
        targets = y_true[:, :-1]
        factor = ops.cast(y_true[:, -1], y_pred.dtype)
        if isinstance(self.loss, MarginMSE):
            scores = ops.sum(y_pred[:, :1] * y_pred[:, 1:], axis=-1)  # (batch, documents)
            total = self.loss.call(targets, scores)
        else:
            total = self.loss.call(targets, y_pred)
        select, factor, vectors = distribution.gather_replicas(factor, y_pred)
        is_counted = ops.cast(factor > 0, vectors.dtype)
        regularization = self.query_regularizer_weight * _flops(vectors[:, :1], is_counted)
        regularization += self.document_regularizer_weight * _flops(vectors[:, 1:], is_counted)
        return total + select(factor * regularization)

    def get_config(self):
        return {**super().get_config(), "loss": keras.saving.serialize_keras_object(self.loss)}

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"loss": keras.saving.deserialize_keras_object(config["loss"])})


def _flops(vectors, is_counted):
    """Return the sum of the squares of the mean weight of each term.

    `vectors` are (rows, texts, vocab). `is_counted` is 1.0 for the rows that count, else 0.0.
    """
    total = ops.einsum("rtv,r->v", vectors, is_counted)
    texts = ops.sum(is_counted) * ops.cast(ops.shape(vectors)[1], vectors.dtype)
    return ops.sum(ops.square(total / ops.maximum(texts, 1.0)))


@keras.saving.register_keras_serializable(package=_PACKAGE)
class ListNet(_Loss):
    """Cross-entropy of the softmax of the logits and the softmax of the relevance of a list.

    Source: Cao et al. (2007), Learning to rank: from pairwise approach to listwise approach,
    section 4.2.

    Args: See `keras.losses.Loss`.

    Example:

    >>> round(float(ListNet()(ops.array([[1.0, 1.0]]), ops.array([[2.0, 2.0]]))), 3)
    0.693
    """

    def __init__(self, name="listnet", **options):
        super().__init__(name, **options)

    def call(self, y_true, y_pred):
        exists, relevance, logits = _existing(y_true, y_pred)
        wanted = ops.softmax(ops.where(exists, relevance, _MASKED), axis=1)
        logits = ops.where(exists, logits, _MASKED)
        return -ops.sum(wanted * ops.log_softmax(logits, axis=1), axis=1)


def _existing(y_true, y_pred):
    """Return which documents exist, bool (batch, documents), the relevance and the logits.

    The relevance and the logits of other documents are 0, so that gradients are finite.
    """
    exists = ops.logical_not(ops.isnan(y_true))
    relevance = ops.where(exists, y_true, 0.0)
    return exists, relevance, ops.where(exists, y_pred, 0.0)


def _mean_of_existing(values, exists):
    """Return the mean of the values of documents that exist, (batch,)."""
    weights = ops.cast(exists, values.dtype)
    return ops.sum(values * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def _cross_entropy(scores, groups, positive_ids, candidate_ids):
    """Return the cross-entropy of each row's own positive among the candidates, (batch,).

    Equal texts have equal ids. The positive of a row is no negative for other rows of its group.

    Args:
        scores: (batch, candidates).
        groups: The id of the group of each row, (batch,).
        positive_ids: The id of the positive of each row, (batch,).
        candidate_ids: The id of each candidate, (candidates,).
    """
    is_first = _is_first(candidate_ids)  # (candidates,): each text is one candidate
    same_group = ops.equal(groups[:, None], groups)  # (batch, batch)
    same_text = ops.equal(positive_ids[:, None], candidate_ids)  # (batch, candidates)
    # How many rows of the same group have the candidate as their positive, (batch, candidates).
    count = ops.matmul(ops.cast(same_group, scores.dtype), ops.cast(same_text, scores.dtype))
    is_own = ops.logical_and(same_text, is_first)
    is_negative = ops.logical_and(count == 0, is_first)
    scores = ops.where(ops.logical_or(is_own, is_negative), scores, _MASKED)
    return ops.logsumexp(scores, axis=1) - ops.sum(ops.where(is_own, scores, 0.0), axis=1)


def _is_first(ids):
    """Return True for the first occurrence of each id, bool (ids,)."""
    index = ops.arange(ops.shape(ids)[0], dtype="int32")
    is_repeated = ops.logical_and(ops.equal(ids[:, None], ids), index[:, None] > index)
    return ops.logical_not(ops.any(is_repeated, axis=1))


def _cosine(y_pred, first=0, second=1):
    """Return the cosine similarity of two texts of each row, (batch,)."""
    vectors = unit_length(y_pred)
    return ops.sum(vectors[:, first] * vectors[:, second], axis=-1)
