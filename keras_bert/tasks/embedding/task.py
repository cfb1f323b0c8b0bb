"""Embeddings: vectors whose similarity says how similar texts are.

Source: Reimers and Gurevych (2019), Sentence-BERT.
"""

import warnings

import keras
import numpy as np

from keras_bert import losses
from keras_bert.data import packing
from keras_bert.model_structure import find_encoder, find_output
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.embedding import metrics as embedding_metrics
from keras_bert.tasks.embedding.head import embedder, siamese
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.text.encoded_texts import EncodedTexts

HEADS = ("embedding",)
MAX_LENGTH = 128
LOSSES = {
    "multiple_negatives_ranking": losses.MultipleNegativesRanking,
    "cosine_similarity": losses.CosineSimilarity,
    "cosent": losses.CoSENT,
    "triplet": losses.Triplet,
    "contrastive": losses.Contrastive,
    "distillation": losses.Distillation,
}
_OF_SCORES = ("cosine_similarity", "cosent", "contrastive")
_TEXTS_OF_TRIPLET = 3
_MOST_TEXTS = 2**24  # Keras converts the numbers of texts to float32
SAMPLINGS = ("proportional", "round_robin")


def build(encoder, train):
    """Build a model of `heads.embedder` for `EmbeddingExamples`."""
    warn_of_pooling(encoder)
    return embedder(encoder)


def warn_of_pooling(encoder):
    """Warn if an encoder does not say how it makes one vector of a text."""
    if encoder.pooling is None:
        warnings.warn(
            f"{encoder.name!r} has no pooling; the mean over the tokens is used. Pass "
            "pooling='mean' to keras_bert.load, or --pooling mean, to hide this warning",
            stacklevel=level_of_caller(),
        )


def model_of_rows(model):
    """Return the model that is trained and scored, for rows of texts; with the same weights."""
    return model if len(model.output_shape) == 3 else siamese(model)


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
        targets: See `batch`; `None` for data that is only scored.
        gradient_caching: True if the rows of all batches of an optimizer step are compared.
        sets: Indices of the rows of each data set, a list of int arrays, or `None`.
        sampling: A value of `SAMPLINGS`: how the batches of the sets take turns.
        filler_target: Target of rows that fill the last batch; `None`: a copy of another target.
    """

    gradient_caching, sampling = False, "proportional"
    filler_target: float | None = None
    sets: list[np.ndarray] | None = None

    def __init__(self, tokenizer, rows, targets, max_length, loss):
        self.max_length, self.loss, self.targets = max_length, loss, targets
        self.texts_per_row = len(rows[0])
        texts = [text for row in rows for text in row]
        self.texts = EncodedTexts(tokenizer, [texts], max_length)
        self.lengths = self.texts.lengths.reshape(-1, self.texts_per_row).max(axis=1)
        self.truncated = self.texts.truncated
        (self.without_tokens,) = self.texts.empty

    def __len__(self):
        return len(self.lengths)

    @property
    def compares_rows(self):
        """True if the loss of a row alone is always 0."""
        loss = getattr(self.loss, "loss", self.loss)  # of `Matryoshka`
        has_negatives = self.texts_per_row > 2
        return isinstance(loss, losses.CoSENT) or (
            isinstance(loss, losses.MultipleNegativesRanking) and not has_negatives
        )

    def share_loss(self, dev):
        """Use this loss for dev data, if its targets are of the same kind."""
        if self.targets is None or dev.targets is None:  # `RetrievalData` has no targets
            return
        if (self.targets.ndim, self.targets.dtype) == (dev.targets.ndim, dev.targets.dtype) and (
            self.texts_per_row == dev.texts_per_row
        ):
            dev.loss, dev.filler_target = self.loss, self.filler_target

    def batch(self, rows, length):
        """Return inputs, a dict of int32 (batch, texts, length), targets and weights (batch,).

        The targets are float32 (batch,) scores, float32 (batch, width) vectors, or int32 (batch,
        texts): the number of each text. Equal texts have equal numbers. With classes, a further
        column has the number of the class.
        """
        inputs, _, _ = self.texts.batch(packing.texts_of_rows(rows, self.texts_per_row), length)
        inputs = {
            key: value.reshape(len(rows), self.texts_per_row, length)
            for key, value in inputs.items()
        }
        if self.targets is None:
            return inputs, None, None
        return inputs, self.targets[rows], np.ones(len(rows), np.float32)


def _targets(examples):
    """Return the targets of all rows, see `EncodedRows.batch`."""
    if examples.vectors is not None:
        return examples.vectors
    if examples.scores is not None:
        return np.array(examples.scores, np.float32)
    texts = dict.fromkeys(text for row in examples.texts for text in row)
    if len(texts) > _MOST_TEXTS:
        raise ValueError(
            f"{examples.source}: must have at most {_MOST_TEXTS} different texts; received "
            f"{len(texts)}. Train on one part after the other"
        )
    numbers = {text: number for number, text in enumerate(texts)}
    targets = np.array([[numbers[text] for text in row] for row in examples.texts], np.int32)
    if examples.classes is not None:
        classes = {label: number for number, label in enumerate(dict.fromkeys(examples.classes))}
        class_of_row = np.array([classes[label] for label in examples.classes], np.int32)
        targets = np.column_stack([targets, class_of_row])
    return targets


def encode(
    model,
    examples,
    max_length,
    *,
    loss=None,
    matryoshka_dims=None,
    gradient_caching=False,
    sampling="proportional",
):
    """Encode `EmbeddingExamples` or `RetrievalData`, truncated to `max_length`.

    `loss` is a key of `LOSSES` or one of its losses, by default `"distillation"` for vectors,
    `"cosent"` for scored pairs and else `"multiple_negatives_ranking"`. `matryoshka_dims` are
    widths for `losses.Matryoshka`. `gradient_caching` and `sampling` are attributes of
    `EncodedRows`. The model's default prompt comes before each text, unless the data has its own
    prompts.
    """
    tokenizer = find_encoder(model).preprocessor.python_tokenizer
    rows = rows_with_prompts(find_output(model), examples)
    if isinstance(examples, RetrievalData):
        return EncodedRows(tokenizer, rows, None, max_length, None)
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling must be {' or '.join(SAMPLINGS)}; received {sampling!r:.80}")
    if sampling != SAMPLINGS[0] and examples.set_sizes is None:
        raise ValueError(
            f"sampling={sampling!r} needs several sets; make them with EmbeddingExamples.of_sets, "
            "or give several --train files"
        )
    if gradient_caching and examples.set_sizes is not None:
        raise ValueError("gradient_caching compares rows of all sets; train on one set")
    base_loss = _make_loss(loss, examples)
    filler_target = np.nan if isinstance(base_loss, losses.CoSENT) else None
    if (
        isinstance(base_loss, losses.CoSENT)
        and len(examples) > 1
        and len(set(examples.scores)) == 1
    ):
        raise ValueError(
            f"{examples.source}: all scores are {examples.scores[0]}, so there is nothing to rank. "
            "Give pairs with different scores"
        )
    width = model.output_shape[-1]
    if examples.vectors is not None and examples.vectors.shape[1] != width:
        raise ValueError(
            f"the embeddings have the width {width}, and {examples.source} has vectors of the "
            f"width {examples.vectors.shape[1]}; give heads.embedder a layer: "
            f"layers=[keras.layers.Dense({examples.vectors.shape[1]})]"
        )
    made = base_loss
    if matryoshka_dims is not None:
        made = _matryoshka(base_loss, matryoshka_dims, width)
    encoded = EncodedRows(tokenizer, rows, _targets(examples), max_length, made)
    if len(rows) and encoded.without_tokens == len(rows) * len(rows[0]):
        raise ValueError(f"{examples.source}: no text has tokens")
    encoded.gradient_caching, encoded.sampling = gradient_caching, sampling
    encoded.filler_target = filler_target
    if examples.set_sizes is not None:
        ends = np.cumsum(examples.set_sizes)
        encoded.sets = np.split(np.arange(ends[-1]), ends[:-1])
    return encoded


def rows_with_prompts(output, examples):
    """Return the rows of `EmbeddingExamples`, or a row per text of `RetrievalData`, with prompts.

    The default prompt of `output` comes before each text, unless the data has its own prompts.
    """
    prompt = output.prompts.get(output.default_prompt, "")
    if isinstance(examples, RetrievalData):
        prompt = "" if examples.has_prompts else prompt
        return [(prompt + text,) for text in _texts_of(examples).values()]
    first, other = examples.prompts or (prompt, prompt)
    return [(first + row[0], *(other + text for text in row[1:])) for row in examples.texts]


def _matryoshka(loss, sizes, width):
    """Return the loss for the first numbers of vectors with a width, too."""
    if not isinstance(sizes, (list, tuple)) or not sizes:
        raise ValueError(f"matryoshka_dims must be a list of widths; received {sizes!r:.80}")
    if max(as_integer("matryoshka_dims", size, 1) for size in sizes) > width:
        raise ValueError(f"matryoshka_dims must be from 1 to {width}; received {sizes}")
    return losses.Matryoshka(loss, sizes)


def check_training_data(examples, encoded):
    """Raise an error if the loss needs negatives and no text can be one."""
    loss = getattr(encoded.loss, "loss", encoded.loss)  # Matryoshka has a loss
    if not isinstance(loss, losses.MultipleNegativesRanking):
        return
    queries = {row[0] for row in examples.texts}
    if len(queries) == 1 and len(examples.texts[0]) < _TEXTS_OF_TRIPLET:
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


def _make_loss(loss, examples):
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
    if loss == "triplet" and len(examples.texts[0]) < _TEXTS_OF_TRIPLET:
        raise ValueError(
            f"the loss triplet needs rows of three texts; {examples.source} has rows of "
            f"{len(examples.texts[0])}. Add hard negatives"
        )
    return LOSSES[loss]() if keras_loss is None else keras_loss


def decode(model, examples, encoded, outputs):
    """Return the embeddings of each row, float32 (texts, width)."""
    return [np.asarray(vectors, np.float32) for vectors in outputs]


def score(output, examples, answers):
    """Return the metrics of the embeddings, see `embedding_metrics`.

    Without scores or vectors, the first text of each row is a query, and the distinct other texts
    of all rows are the corpus. The similarity is that of `output`; `None` means the cosine.
    """
    _check_scorable(examples)
    kind = "cosine" if output is None else output.similarity
    if isinstance(examples, RetrievalData):
        vectors = dict(zip([*_texts_of(examples)], answers, strict=True))
        return _of_retrieval(
            {query: vectors["query", query][0] for query in examples.queries},
            {document: vectors["document", document][0] for document in examples.corpus},
            examples.relevant,
            kind,
        )
    if examples.vectors is not None:
        width = answers[0].shape[-1]
        if width != examples.vectors.shape[1]:
            raise ValueError(
                f"the embeddings have the width {width}, and {examples.source} has vectors of the "
                f"width {examples.vectors.shape[1]}. Use vectors of the width of the model"
            )
        return embedding_metrics.of_vectors(np.concatenate(answers), examples.vectors)
    if examples.scores is not None:
        return embedding_metrics.of_scores(np.array(answers), examples.scores, kind)
    queries: dict[str, np.ndarray] = {}
    corpus: dict[str, np.ndarray] = {}
    relevant: dict[str, dict] = {}
    for row, vectors in zip(examples.texts, answers, strict=True):
        queries[row[0]] = vectors[0]
        corpus |= zip(row[1:], vectors[1:], strict=True)
        relevant.setdefault(row[0], {})[row[1]] = 1.0
    if examples.classes is not None:
        members: dict[str, dict] = {}
        for row, label in zip(examples.texts, examples.classes, strict=True):
            members.setdefault(label, {})[row[1]] = 1.0
        for row, label in zip(examples.texts, examples.classes, strict=True):
            relevant[row[0]] = {text: 1.0 for text in members[label] if text != row[0]}
    metrics = _of_retrieval(queries, corpus, relevant, kind, own_text=True)
    if len(examples.texts[0]) >= _TEXTS_OF_TRIPLET:
        metrics |= embedding_metrics.of_triplets(answers, kind)
    return metrics


def _check_scorable(examples):
    """Raise an error for pairs of equal texts, whose scores would always be perfect."""
    has_labels = isinstance(examples, RetrievalData) or any(
        getattr(examples, name) is not None for name in ("vectors", "scores", "classes")
    )
    if not has_labels and all(len(set(row)) == 1 for row in examples.texts):
        raise ValueError(
            f"{examples.source}: texts without labels cannot be scored. Give pairs, scores or "
            "classes"
        )


def _of_retrieval(queries, corpus, relevant, kind, own_text=False):
    """Return the metrics of retrieval for dicts of vectors, and grades by the keys of both.

    With `own_text`, the keys are texts, and a query does not find itself unless it is relevant.
    """
    numbers = {key: number for number, key in enumerate(corpus)}
    scored = [query for query in queries if relevant.get(query)]
    if not scored:
        raise ValueError("no text has a relevant text other than itself; there is nothing to score")
    return embedding_metrics.of_retrieval(
        np.array([queries[query] for query in scored]),
        np.array(list(corpus.values())),
        [{numbers[key]: grade for key, grade in relevant[query].items()} for query in scored],
        [numbers.get(query) if query not in relevant[query] else None for query in scored]
        if own_text
        else None,
        kind,
    )


def _texts_of(examples):
    """Return the texts of `RetrievalData`, a dict with the keys ("query" or "document", id)."""
    queries = {("query", key): text for key, text in examples.queries.items()}
    return queries | {("document", key): text for key, text in examples.corpus.items()}


def metric_names(output, examples):
    """Return the names of the metrics of `score`, the main one first."""
    _check_scorable(examples)
    if getattr(examples, "vectors", None) is not None:
        return ("cosine",)
    if getattr(examples, "scores", None) is not None:
        names: tuple[str, ...] = ("spearman", "pearson")
        if embedding_metrics.are_labels(examples.scores):
            names += embedding_metrics.OF_LABELS
        return names
    names = embedding_metrics.RETRIEVAL
    if not isinstance(examples, RetrievalData) and len(examples.texts[0]) >= _TEXTS_OF_TRIPLET:
        names += ("triplet_accuracy",)
    return names
