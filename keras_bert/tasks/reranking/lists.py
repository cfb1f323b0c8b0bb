"""Lists of documents as sequences of token ids, with the targets of ranking losses."""

import collections
import warnings

import numpy as np

from keras_bert import losses
from keras_bert.data import packing
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.named_losses import NamedLoss, choose
from keras_bert.text.encoded_texts import Encoded, EncodedTexts

_NUM_NEGATIVES = 4  # documents of other queries per list, as in sentence-transformers
_MOST_DOCUMENTS = 256  # all lists of a batch have the length of the longest list


LOSSES = {
    "binary_cross_entropy": NamedLoss(losses.BinaryRelevance, lowest=0, highest=1),
    "multiple_negatives": NamedLoss(losses.MultipleNegativesReranking, lowest=0, highest=1),
    "margin_mse": NamedLoss(losses.MarginMSE),
    "listnet": NamedLoss(losses.ListNet),
}


class EncodedLists(Encoded):
    """Tokenized lists of pairs of a query and a document, for training.

    Attributes:
        lengths: Length of the longest pair of each list, int (n,).
        loss: The Keras loss for the targets.
        texts: The `EncodedTexts` of all pairs, one list after the other.
        texts_per_row: Number of documents of each list; shorter ones end in empty documents.
        targets: Relevance of each document, float32 (n, documents); NaN for empty documents.
    """

    def __init__(self, tokenizer, lists, max_length, loss):
        """`lists` are tuples of a query, its documents and their scores."""
        self.max_length = max_length
        self.loss = loss
        self.loss_name = loss.name
        count = max(len(documents) for _, documents, _ in lists)
        self.texts_per_row = count
        self.targets = np.full((len(lists), count), np.nan, np.float32)
        queries: list[str] = []
        texts: list[str] = []
        for row, (query, documents, scores) in enumerate(lists):
            missing = count - len(documents)
            queries += [query] * len(documents) + [""] * missing
            texts += [*documents, *[""] * missing]
            self.targets[row, : len(documents)] = scores
        self.texts = EncodedTexts(tokenizer, [queries, texts], max_length)
        self.lengths = self.texts.lengths.reshape(-1, count).max(axis=1)
        self.truncated = self.texts.truncated
        empty = int(np.isnan(self.targets).sum())  # they have an empty query and document
        self.without_tokens = self.texts.without_tokens - 2 * empty

    def share_loss(self, dev):
        """Use the loss of single documents for dev data, if its scores are in the range."""
        in_range = dev.targets is not None and np.all((dev.targets >= 0) & (dev.targets <= 1))
        if isinstance(self.loss, losses.BinaryRelevance) and in_range:
            dev.loss = self.loss
            dev.has_targets = True

    def batch(self, rows, length):
        """Return inputs, a dict of int32 (batch, documents, length), targets and weights."""
        count = self.texts_per_row
        inputs, _, _ = self.texts.batch(packing.texts_of_rows(rows, count), length)
        inputs = {key: value.reshape(len(rows), count, length) for key, value in inputs.items()}
        return inputs, self.targets[rows], np.ones(len(rows), np.float32)

    def filler_targets(self, targets):
        return np.full_like(targets, np.nan)


def make_loss(options, examples):
    """Return the Keras loss for `RerankingOptions` and the data."""
    loss = options.loss
    if loss is None:
        loss = _default_loss(examples)
    name, loss = choose(loss, LOSSES)
    _check_scores(name, examples)
    if options.num_negatives is not None and name != "multiple_negatives":
        raise ValueError(f"num_negatives applies to the loss multiple_negatives, not to {name}")
    return loss


def _default_loss(examples):
    """Return the name of the loss for the scores of the data."""
    scores = examples.flat_scores()
    if all(score == 1 for score in scores):
        return "multiple_negatives"
    # The cross-entropy of single documents learns slowly how many of them are relevant. To learn
    # their order, it needs far more queries than a loss that compares them.
    queries_with_order = sum(len(set(scores)) > 1 for scores in examples.scores)
    return "listnet" if queries_with_order > len(examples) / 2 else "binary_cross_entropy"


def _check_scores(name, examples):
    """Raise an error for scores and lists that a loss is not made for."""
    choice = LOSSES[name]
    sizes = list(map(len, examples.documents))
    advice = "Use the loss margin_mse or listnet"
    if max(sizes) < 2:
        advice = "Divide the scores by the highest one, or add documents to each query"
    for row, scores in enumerate(examples.scores, 1):
        where = f"{examples.source}, query {row} ({shown(examples.queries[row - 1], 40)})"
        wrong = [score for score in scores if not choice.lowest <= score <= choice.highest]
        if wrong:
            raise ValueError(
                f"{where}: the loss {name} needs scores from {choice.lowest} to {choice.highest}; "
                f"received {wrong[0]:g}. {advice}"
            )
        if name == "multiple_negatives" and not {0, 1}.issuperset(scores):
            raise ValueError(
                f"{where}: the loss {name} needs the scores 0 and 1; received {shown(scores)}. Use "
                "the loss binary_cross_entropy"
            )
    longest = int(np.argmax(sizes))
    if name != "binary_cross_entropy" and sizes[longest] > _MOST_DOCUMENTS:
        raise ValueError(
            f"{examples.source}, query {longest + 1} ({shown(examples.queries[longest], 40)}): the "
            f"loss {name} takes at most {_MOST_DOCUMENTS} documents per query; received "
            f"{sizes[longest]}. Leave out some that are not relevant"
        )
    if name in ("margin_mse", "listnet") and max(sizes) < 2:
        raise ValueError(
            f"{examples.source}: the loss {name} compares the documents of a query, and each query "
            "has one. Use the loss binary_cross_entropy, or add documents"
        )
    if name == "binary_cross_entropy" and len(set(examples.flat_scores())) == 1:
        raise ValueError(
            f"{examples.source}: all scores are {examples.scores[0][0]:g}, so there is nothing to "
            "learn. Add documents with other scores; for positives alone, use multiple_negatives"
        )


def lists_of(examples, loss, num_negatives):
    """Return the lists that a loss compares: tuples of a query, documents and scores.

    A query from which the loss would learn nothing is left out, with a warning.
    """
    queries = list(zip(examples.queries, examples.documents, examples.scores, strict=True))
    if isinstance(loss, losses.BinaryRelevance):
        return [
            (query, [document], [score])
            for query, documents, scores in queries
            for document, score in zip(documents, scores, strict=True)
        ]
    if isinstance(loss, losses.MultipleNegativesReranking):
        has_positive = [row for row in queries if 1 in row[2]]
        _warn_of_left_out(examples, has_positive, "no document has the score 1")
        return _with_random_negatives(has_positive, examples.source, num_negatives)
    rows = [row for row in queries if len(row[1]) > 1]
    if isinstance(loss, losses.ListNet):
        rows = [row for row in rows if len(set(row[2])) > 1]
        _warn_of_left_out(examples, rows, "all their documents have the same score")
    return rows


def _warn_of_left_out(examples, rows, reason):
    """Warn of queries that are not in `rows`; raise an error if none is left."""
    left_out = len(examples) - len(rows)
    if not rows:
        raise ValueError(f"{examples.source}: there is nothing to learn from the queries: {reason}")
    if left_out:
        warnings.warn(
            f"{examples.source}: {left_out} of {len(examples)} queries were left out, because "
            f"{reason}",
            stacklevel=level_of_caller(),
        )


def _with_random_negatives(queries, source, count):
    """Return a list for each positive document: it, the negatives of its query, and random ones.

    The random ones are documents of other queries. They are drawn once for all epochs.
    """
    count = as_integer("num_negatives", _NUM_NEGATIVES if count is None else count, 0)
    documents_of_query = collections.defaultdict(set)
    for query, documents, _ in queries:
        documents_of_query[query].update(documents)
    corpus = list(dict.fromkeys(text for _, documents, _ in queries for text in documents))
    generator = np.random.default_rng(0)
    lists = []
    for query, documents, scores in queries:
        negatives = [text for text, score in zip(documents, scores, strict=True) if score == 0]
        own = documents_of_query[query]
        for text, score in zip(documents, scores, strict=True):
            if score == 0:
                continue
            drawn = generator.choice(len(corpus), min(count + len(own), len(corpus)), replace=False)
            others = [corpus[index] for index in drawn if corpus[index] not in own][:count]
            row = [text, *negatives, *others]
            if len(row) > 1:
                lists.append((query, row, [1.0] + [0.0] * (len(row) - 1)))
    if not lists:
        raise ValueError(f"{source}: there are no negatives. Give different documents")
    return lists
