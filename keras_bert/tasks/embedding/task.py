"""Embeddings: vectors whose similarity says how similar texts are.

Source: Reimers and Gurevych (2019), Sentence-BERT.
"""

import collections
import dataclasses
import itertools
import typing
from collections.abc import Mapping

import numpy as np

from keras_bert.data.examples import Examples, with_columns
from keras_bert.model_spec import UNIT_LENGTH
from keras_bert.runtime.arguments import as_list, check_one_of
from keras_bert.runtime.escaping import shown
from keras_bert.tasks.embedding import metrics as embedding_metrics
from keras_bert.tasks.embedding import retrieval
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.pipeline import EmbeddingPipeline
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.pipeline import Pipeline
from keras_bert.tasks.task import Options, Task
from keras_bert.tasks.text import READ_OPTIONS, read_texts, read_values

SAMPLINGS = ("proportional", "round_robin")


@dataclasses.dataclass(frozen=True)
class EmbeddingOptions(Options):
    """Options of training.

    loss: A key of `LOSSES` or one of its losses. Default: `"distillation"` for vectors, `"cosent"`
        for scored pairs, and else `"multiple_negatives_ranking"`.
    matryoshka_dims: Widths for `losses.Matryoshka`.
    gradient_caching: True to compare the rows of all batches of an optimizer step.
    sampling: How the batches of several sets take turns: a value of `SAMPLINGS`.
    """

    loss: typing.Any = None
    matryoshka_dims: list | None = None
    gradient_caching: bool = False
    sampling: str = "proportional"


class Embedding(Task):
    """Embeddings: vectors whose similarity says how similar texts are."""

    name = "embedding"
    data = (EmbeddingExamples, RetrievalData)
    comparable_data = (Examples, EmbeddingExamples)
    reads: typing.ClassVar = {
        "embedding": (*READ_OPTIONS, "negatives", "score_range"),
        "retrieval": ("split",),
    }
    default_label = None
    training_options: type[Options] = EmbeddingOptions
    pipeline: type[Pipeline] = EmbeddingPipeline
    answers_texts = True
    reads_encoders = True
    graph_outputs = ("sentence_embedding",)
    command_hint = "; use keras-bert embed"
    uses_pooler = False
    head_fields: tuple[str, ...] = ("prompts", "default_prompt", "similarity")
    has_teachers = True
    packs = True
    compares_vectors = True
    hub_tag = "feature-extraction"

    def head_function(self):
        from keras_bert.tasks.embedding.head import embedder

        return embedder

    def read(self, name, data, options):
        if name == "embedding":
            return read_rows(data, options)
        return retrieval.read(data, options["split"])

    def results(self, output, examples, answers, **options):
        return answers

    def describe(self, output):
        return "A BERT model that computes a vector for each text."

    def columns_of(self, examples, output):
        if isinstance(examples, Examples):
            return [list(examples.texts)]
        return [[text for row in examples.texts for text in row]]

    def is_labeled(self, examples):
        return True

    def is_scorable(self, examples):
        return isinstance(examples, self.data) and not _has_only_equal_texts(examples)

    def build(self, encoder, train):
        from keras_bert.tasks.embedding.head import warn_of_pooling

        warn_of_pooling(encoder)
        return self.head_function()(encoder)

    def from_encoder(self, model, pooling=None):
        """Return an embedder: the model itself, or a new head on its encoder."""
        from keras_bert.tasks.embedding.head import as_embedder

        return as_embedder(model, pooling)

    def model_of_batches(self, model):
        from keras_bert.model_structure import has_choices
        from keras_bert.tasks.embedding.head import of_rows

        if has_choices(model):  # a model of `siamese` takes rows of texts already
            return super().model_of_batches(model)
        return of_rows(model)

    def compile_options(self, output, encoded):
        return {"loss": encoded.loss}

    def encode(self, model, examples, max_length, options):
        """Encode `EmbeddingExamples` or `RetrievalData`.

        The model's default prompt comes before each text, unless the data has its own prompts.
        """
        from keras_bert.tasks.embedding import loss_choice
        from keras_bert.tasks.embedding.rows import EncodedRows

        rows = examples.prompted_rows(prompt_of(model.output))
        if isinstance(examples, RetrievalData):
            return EncodedRows(model.tokenizer, rows, max_length)
        check_sampling(examples, options.sampling)
        _check_caching(examples, options)
        _check_width(examples, model.width)
        loss = loss_choice.make_loss(options, examples)
        encoded = EncodedRows(model.tokenizer, rows, max_length, examples, loss, options)
        if encoded.without_tokens == len(rows) * len(rows[0]):
            raise ValueError(f"{examples.source}: no text has tokens")
        return encoded

    def check_training_data(self, examples, encoded):
        from keras_bert.tasks.embedding import loss_choice

        _check_no_empty_negatives(examples)
        loss_choice.check_negatives(examples, encoded)

    def decode(self, model, examples, encoded, outputs, options):
        """Return the embeddings of each row, float32 (texts, width)."""
        return [np.asarray(vectors, np.float32) for vectors in outputs]

    def score(self, output, examples, answers):
        """Return the metrics of the embeddings, see `embedding_metrics`.

        Without scores or vectors, the first text of each row is a query, and the distinct
        other texts of all rows are the corpus. The similarity is that of `output`; `None`
        means the cosine.
        """
        check_scorable(examples)
        kind = "cosine" if output is None else output.similarity
        if isinstance(examples, RetrievalData):
            vectors = np.concatenate(answers)
            queries = dict(zip(examples.queries, vectors, strict=False))
            corpus = dict(zip(examples.corpus, vectors[len(queries) :], strict=True))
            return embedding_metrics.of_retrieval(queries, corpus, examples.relevant, kind)
        if examples.vectors is not None:
            _check_width(examples, answers[0].shape[-1])
            return embedding_metrics.of_vectors(np.concatenate(answers), examples.vectors)
        if examples.scores is not None:
            return embedding_metrics.of_scores(np.array(answers), examples.scores, kind)
        queries = {}
        corpus = {}
        for row, vectors in zip(examples.texts, answers, strict=True):
            queries[row[0]] = vectors[0]
            corpus |= zip(row[1:], vectors[1:], strict=True)
        metrics = embedding_metrics.of_retrieval(queries, corpus, relevant_texts(examples), kind)
        if len(examples.texts[0]) >= 3:
            metrics |= embedding_metrics.of_triplets(answers, kind)
        return metrics

    def metric_names(self, output, examples):
        """Return the names of the metrics of `score`, the main one first."""
        check_scorable(examples)
        if isinstance(examples, RetrievalData):
            return embedding_metrics.RETRIEVAL
        if examples.vectors is not None:
            return ("cosine",)
        if examples.scores is not None:
            names: tuple[str, ...] = ("spearman", "pearson")
            if embedding_metrics.are_labels(examples.scores):
                names += embedding_metrics.OF_LABELS
            return names
        names = embedding_metrics.RETRIEVAL
        if len(examples.texts[0]) >= 3:
            names += ("triplet_accuracy",)
        return names

    def served_rows(self, results):
        return [{"embedding": vector.tolist()} for vector in results]

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.embedding import serving

        return serving.embedder(predict, output, preprocessor, max_sequence_length)

    def other_signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.embedding import serving

        if not output.prompts:
            return {}
        arguments = (predict, output, preprocessor, max_sequence_length)
        return {"with_prompt": serving.embedder_with_prompts(*arguments)}

    def spec_of_head(self, model):
        from keras_bert.tasks.embedding.head import vector_layer_of

        spec = super().spec_of_head(model)
        layers = [
            vector_layer_of(layer, model.name) for layer in self.vector_layers(model).values()
        ]
        return dataclasses.replace(spec, layers=(*spec.layers, *layers))

    def options_of_head(self, head):
        from keras_bert.tasks.embedding.head import keras_layer_of

        if head.task != self.name:
            return {}
        normalize = head.layers[-1:] == (UNIT_LENGTH,)
        layers = head.layers[:-1] if normalize else head.layers
        return super().options_of_head(head) | {
            "pooling": list(head.pooling),
            "layers": [keras_layer_of(layer, index) for index, layer in enumerate(layers)],
            "normalize": normalize,
        }

    def vector_layers(self, model):
        from keras_bert.tasks.embedding.head import layers_after_pooling

        if "pooling" not in [layer.name for layer in model.layers]:  # not built by `embedder`
            return {}
        first = int(model.get_layer("pooling").normalize)  # that is the first one of the spec
        return dict(enumerate(layers_after_pooling(model), first))

    def add_onnx_head(self, graph, model, encoded):
        from keras_bert.tasks.embedding.head import layers_after_pooling

        x = encoded.text_vector()
        for layer in layers_after_pooling(model):
            x = graph.layer(x, layer)
        graph.node("Identity", encoded.sequence, output="last_hidden_state")
        graph.node("Identity", x, output="sentence_embedding")
        return {
            "last_hidden_state": ("batch_size", "sequence_length", encoded.hidden_size),
            "sentence_embedding": ("batch_size", model.output_shape[-1]),
        }

    def target(self, explained, target):
        """Explain the cosine similarity to another text."""
        if not isinstance(target, str):
            raise ValueError(f"target must be a text to compare with; received {shown(target)}")
        return target, explained.cosine_to(target), None


def read_rows(data, options: dict) -> EmbeddingExamples:
    """Read pairs, scored pairs or classes of texts from a file or a table.

    Pairs are scored if `label` names a column. Without `text_pair`, the rows are texts of the
    classes in `label`, or texts without labels.
    """
    options = dict(options)
    negatives = options.pop("negatives")
    negatives = [negatives] if isinstance(negatives, str) else as_list("negatives", negatives)
    score_range = options.pop("score_range")
    if options["text_pair"] is None:
        if negatives or score_range:
            raise ValueError(
                "negatives and score_range apply only to pairs; give text_pair, the column of the "
                "second text"
            )
        examples = read_texts(data, "label", options)
        if examples.labels is None:
            rows = EmbeddingExamples.of_texts(examples.texts, source=examples.source)
        else:
            rows = EmbeddingExamples.of_classes(examples)
    else:
        examples = read_texts(data, "score", options)
        options |= {"text_pair": None, "label": None}
        others = []
        for name in negatives:
            others += _columns_of_negatives(data, options | {"text": name})
        rows = EmbeddingExamples.of_pairs(examples, others, score_range=score_range)
    return with_columns(rows, examples.columns)


def _columns_of_negatives(data, options):
    """Return columns of texts: a column, or for a column of lists one for each item of the lists.

    Shorter lists are filled with empty texts.
    """
    values = read_values(data, options)
    if not any(isinstance(value, list) for value in values):
        return [read_texts(data, "label", options).texts]
    lists = [value if isinstance(value, list) else [value or ""] for value in values]
    return [list(column) for column in itertools.zip_longest(*lists, fillvalue="")]


def check_sampling(examples, sampling):
    """Raise an error unless the data fit how the batches of several sets take turns."""
    check_one_of("sampling", sampling, SAMPLINGS)
    if sampling != SAMPLINGS[0] and examples.set_sizes is None:
        raise ValueError(
            f"sampling={sampling!r} needs several sets; make them with "
            "EmbeddingExamples.of_sets, or give several --train files"
        )


def _check_no_empty_negatives(examples):
    """Raise an error for a row with an empty negative, such as an empty cell of a file."""
    if examples.document_scores is not None:
        return
    for number, row in enumerate(examples.texts, 1):
        if not all(text.strip() for text in row[2:]):
            raise ValueError(
                f"{examples.source}: the negative of the data row {number} is empty, and all rows "
                "need as many negatives. Fill it in, leave the row out, or train a reranker"
            )


def _check_caching(examples, options):
    if options.gradient_caching and examples.set_sizes is not None:
        raise ValueError("gradient_caching compares rows of all sets; train on one set")


def _check_width(examples, width):
    """Raise an error if vectors to imitate have another width than those of the model."""
    if examples.vectors is not None and examples.vectors.shape[1] != width:
        wanted = examples.vectors.shape[1]
        raise ValueError(
            f"the embeddings have the width {width}, and {examples.source} has vectors of the "
            f"width {wanted}; give heads.embedder a layer: layers=[keras.layers.Dense({wanted})]"
        )


def _has_only_equal_texts(examples):
    """Return True for pairs of equal texts without labels, whose scores would be perfect."""
    has_labels = isinstance(examples, RetrievalData) or any(
        getattr(examples, name) is not None for name in ("vectors", "scores", "classes")
    )
    return not has_labels and all(len(set(row)) == 1 for row in examples.texts)


def check_scorable(examples):
    """Raise an error for pairs of equal texts without labels."""
    if _has_only_equal_texts(examples):
        raise ValueError(
            f"{examples.source}: texts without labels cannot be scored. Give pairs, scores or "
            "classes"
        )


def relevant_texts(examples):
    """Return {query: {relevant text: 1.0}}: the positives of the query, or of its class."""
    groups = examples.classes or [row[0] for row in examples.texts]
    texts_of_group: dict[str, dict] = collections.defaultdict(dict)
    for row, group in zip(examples.texts, groups, strict=True):
        texts_of_group[group][row[1]] = 1.0
    relevant: dict[str, Mapping] = {}
    for row, group in zip(examples.texts, groups, strict=True):
        relevant[row[0]] = texts_of_group[group]
        if examples.classes is not None:
            relevant[row[0]] = embedding_metrics.OtherTexts(texts_of_group[group], row[0])
    return relevant
