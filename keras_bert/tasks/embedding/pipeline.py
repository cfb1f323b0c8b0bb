"""The pipeline of embedders."""

import collections
import warnings

import numpy as np

from keras_bert.data.examples import Examples, TaskData
from keras_bert.runtime.arguments import as_integer, as_number, check_one_of, check_type
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.embedding import nearest as search
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.embedding.precision import DTYPES, has_ranges
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.inputs import SOURCE, check_texts, is_pair, listed, prompt_of
from keras_bert.tasks.text import TextPipeline
from keras_bert.text.encoded_texts import EncodedTexts

_MINED = 20  # texts that are looked at for each negative


class EmbeddingPipeline(TextPipeline):
    """Pipeline of `heads.embedder`. Its results are arrays."""

    options = ("prompt", "normalize", "truncate_dim")
    long_texts_options = ("truncate", "error")

    def encode(self, inputs, *, precision="float32", calibration=None, ranges=None, **options):
        """Return the embeddings of texts; in float32, the same as a call of the pipeline.

        Args:
            inputs: As for `__call__`.
            precision: `"float32"`, or `"int8"`, `"uint8"`, `"binary"` or `"ubinary"` for vectors of
                fewer bytes, see `search.quantize`. Queries of `search.top_k` stay in float32.
            calibration: For int8 and uint8, texts or an array of their embeddings (n, width), which
                set the range of each dimension. By default the inputs set them.
            ranges: For int8 and uint8, the ranges that `search.calibrate` returned.
            **options: `batch_size` and `show_progress`, see `__call__`. `prompt`: the name of one
                of the model's prompts, or a text that comes before each text; by default the
                model's default prompt, and `""` for none. `normalize`: if True, scale vectors to
                length 1. `truncate_dim`: keep that many first numbers of each vector. Both come
                before the precision.

        Returns:
            An array (width,) for one text, (texts, width) for several. Its type is that of the
            precision; with 1 bit per number, the width is that of the bytes.

        Raises:
            ValueError: If the precision is unknown, or the ranges or the calibration do not fit.
        """
        check_one_of("precision", precision, DTYPES)
        if not has_ranges(precision) and (calibration is not None or ranges is not None):
            raise ValueError(
                f"calibration and ranges apply to int8 and uint8; received {precision!r}"
            )
        if calibration is not None and ranges is not None:
            raise ValueError("give calibration or ranges, not both")
        vectors = self(inputs, **options)
        if precision == "float32":
            return vectors
        if not isinstance(vectors, np.ndarray):
            raise ValueError(
                f"precision={precision!r} takes a text or a list of texts; received "
                f"{type(inputs).__name__}"
            )
        if calibration is not None:
            if not isinstance(calibration, np.ndarray) or calibration.dtype.kind != "f":
                calibration = self(calibration, **options)
            ranges = search.calibrate(calibration)
        return search.quantize(vectors, precision, ranges)

    def mine_negatives(self, examples, count=1, *, margin=0.05, prompt=None, corpus_prompt=None):
        """Add hard negatives to pairs: the most similar texts that are not positives of the query.

        Args:
            examples: `keras_bert.EmbeddingExamples` of pairs without scores. The second texts are
                the corpus.
            count: Negatives per row. Rows with fewer are left out, and a warning counts them.
            margin: A text whose cosine similarity is not below that of the positive by the margin
                is left out, because it may be another right answer. With 0, no text is left out
                for its similarity.
            prompt: Prompt of the first texts, see `encode`.
            corpus_prompt: Prompt of the second texts.

        Returns:
            `EmbeddingExamples` of rows with 2 + `count` texts, for `keras_bert.finetune`.

        Raises:
            ValueError: If the examples are not pairs without scores, or no row has negatives.
        """
        count = as_integer("count", count, 1)
        margin = as_number("margin", margin)
        check_type("examples", examples, EmbeddingExamples)
        _check_no_prompts(examples)
        others = (examples.scores, examples.classes, examples.set_sizes)
        if others != (None, None, None) or any(len(row) != 2 for row in examples.texts):
            raise ValueError(
                f"{examples.source} must hold pairs of one set, without scores and classes"
            )
        positives = collections.defaultdict(set)
        for query, positive in examples.texts:
            positives[query].add(positive)
        corpus = list(dict.fromkeys(examples.positives))
        index_of = {text: index for index, text in enumerate(corpus)}
        vectors = self.encode(corpus, prompt=corpus_prompt, normalize=True)
        queries = self.encode(list(positives), prompt=prompt, normalize=True)
        row_of_query = {query: row for row, query in enumerate(positives)}
        candidates = _nearest_others(queries, vectors, positives, index_of, _MINED * count)
        rows_of_queries = [row_of_query[query] for query, _ in examples.texts]
        rows_of_positives = [index_of[positive] for _, positive in examples.texts]
        positive_scores = search.similarity_of_pairs(
            queries[rows_of_queries], vectors[rows_of_positives]
        )
        rows = []
        for (query, positive), score in zip(examples.texts, positive_scores, strict=True):
            indices, distances = candidates[query]
            # The nearest ones may be right answers.
            first = np.searchsorted(distances, margin - score, side="right") if margin else 0
            negatives = [corpus[index] for index in indices[first : first + count]]
            if len(negatives) == count:
                rows.append((query, positive, *negatives))
        if not rows:
            raise ValueError(
                f"no row of {examples.source} has {count} negatives; lower count or margin"
            )
        if left_out := len(examples) - len(rows):
            warnings.warn(
                f"{examples.source}: {left_out} of {len(examples)} rows were left out, because "
                f"they have fewer than {count} negatives. To keep more rows, lower count or margin",
                stacklevel=level_of_caller(),
            )
        return EmbeddingExamples(rows, source=examples.source)

    def as_teacher(self, texts, *, target="vectors", prompt=None):
        """Return training data for a smaller model: texts with their embeddings, or scored pairs.

        Args:
            texts: A list of texts, or `keras_bert.Examples` or `EmbeddingExamples`, whose texts are
                taken. For scores, pairs: a list of tuples, or such data.
            target: `"vectors"`, the embeddings of the texts, or `"scores"`, the cosine similarities
                of the pairs. The embeddings of a model that learns scores can have any width.
            prompt: See `encode`.

        Returns:
            `EmbeddingExamples` with `vectors` or `scores`, for `keras_bert.finetune`.

        Raises:
            ValueError: If a text is not a string, or `target` is `"scores"` and a row is not a
                pair.
        """
        check_one_of("target", target, ("vectors", "scores"))
        _check_no_prompts(texts)
        source = texts.source if isinstance(texts, TaskData) else SOURCE
        rows = _rows_of(texts)
        is_pairs = all(len(row) == 2 for row in rows) and any(row[0] != row[1] for row in rows)
        if target == "scores" and not is_pairs:
            raise ValueError(
                f"{source}: scores need pairs of different texts. Give a list of tuples"
            )
        distinct = list(dict.fromkeys(check_texts([text for row in rows for text in row])))
        vectors = self.encode(distinct, prompt=prompt, normalize=target == "scores")
        if target == "vectors":
            return EmbeddingExamples([(text,) for text in distinct], source=source, vectors=vectors)
        vector_of = dict(zip(distinct, vectors, strict=True))
        cosines = [vector_of[first] @ vector_of[second] for first, second in rows]
        scores = [float(np.clip(cosine, -1, 1)) for cosine in cosines]  # rounding can exceed 1
        return EmbeddingExamples(rows, scores, source=source)

    def similarity(self, first, second):
        """Compare each vector of one array with each of another, as the model was trained.

        Args:
            first: Floats (n, width) or (width,).
            second: Floats (m, width) or (width,).

        Returns:
            A float32 array (n, m). A higher number means more similar, so distances are negative.

        Raises:
            ValueError: If the widths differ.
        """
        return search.similarity(first, second, self.output.similarity)

    def _run_rows(self, rows, call):
        width = self.width_of(call.options.get("truncate_dim"))
        return np.reshape(super()._run_rows(rows, call), (-1, width))

    def width_of(self, truncate_dim=None):
        """Return the width of the vectors, after a check of `truncate_dim`."""
        width = self.predictor.task_model.width
        if truncate_dim is None:
            return width
        if as_integer("truncate_dim", truncate_dim, 1) > width:
            raise ValueError(f"truncate_dim must be at most {width}; received {truncate_dim}")
        return truncate_dim

    def _answers(self, examples, call, on_batch=None):
        if isinstance(examples, (EmbeddingExamples, RetrievalData)):
            rows = examples.prompted_rows(prompt_of(self.output))
            texts = [text for row in rows for text in row]
            vectors = self._vectors(texts, call, on_batch)
            return list(np.reshape(vectors, (len(rows), -1, vectors.shape[-1])))
        prompt = prompt_of(self.output, call.options.get("prompt"))
        texts = [prompt + text for text in examples.texts] if prompt else examples.texts
        vectors = self._vectors(texts, call, on_batch)
        search.check_finite(vectors, self.predictor.name)
        vectors = vectors[:, : call.options.get("truncate_dim")]
        return list(search.unit_length(vectors) if call.options.get("normalize") else vectors)

    def _vectors(self, texts, call, on_batch):
        """Return the vectors of texts, float32 (texts, width)."""
        model = self.predictor.task_model
        encoded = EncodedTexts(model.tokenizer, [texts], model.max_length)
        self._count(encoded, len(texts), call)
        vectors = self.predictor.outputs(encoded, batch_size=call.batch_size, on_batch=on_batch)
        return np.reshape(np.array(vectors, np.float32), (-1, model.width))

    def _joined(self, answers):
        return np.array(answers, np.float32)


def _check_no_prompts(texts):
    """Raise an error for data with prompts, since the methods have arguments for them."""
    if isinstance(texts, TaskData) and texts.prompts is not None:
        raise ValueError(
            f"{texts.source}: the data has prompts. Call with_prompts later, and pass the prompts "
            "of this call as arguments"
        )


def _nearest_others(queries, vectors, positives, index_of, count):
    """Find at least `count` vectors, if there are as many, that are no positives of a query.

    Args:
        queries: Vectors of the queries, in the order of `positives`.
        vectors: Vectors of the corpus.
        positives: {query: its positives}.
        index_of: {text: index in the corpus}.

    Returns:
        {query: (indices in the corpus, negative similarities)}, the nearest vector first.
    """
    # A query with n positives needs n results more. The memory of a search grows with the most
    # results, so queries with more than twice as many positives are searched for on their own.
    rows_of_size = collections.defaultdict(list)
    for row, texts in enumerate(positives.values()):
        rows_of_size[len(texts).bit_length()].append(row)
    names = list(positives)
    others = {}
    for size, rows in rows_of_size.items():
        nearest, similarities = search.top_k(queries[rows], vectors, count + 2**size)
        for row, indices, scores in zip(rows, nearest, similarities, strict=True):
            query = names[row]
            is_other = ~np.isin(indices, [index_of[text] for text in positives[query]])
            others[query] = indices[is_other], -scores[is_other]
    return others


def _rows_of(texts):
    """Return data of texts, or a list of texts or pairs, as a list of tuples of texts."""
    if isinstance(texts, EmbeddingExamples):
        return texts.texts
    if isinstance(texts, Examples):
        return list(zip(*texts.text_columns(), strict=True))
    texts, _ = listed(texts, "texts")
    return [tuple(row) if is_pair(row) else (row,) for row in texts]
