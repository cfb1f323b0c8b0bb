"""The pipeline of sparse embedders."""

import numpy as np
from scipy import sparse

from keras_bert.data.examples import Examples
from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown
from keras_bert.tasks import results
from keras_bert.tasks.inputs import prompt_of
from keras_bert.tasks.sparse_embedding import inverted_index
from keras_bert.tasks.text import TextPipeline
from keras_bert.text.encoded_texts import EncodedTexts


def _are_vectors(given):
    """Return True for sparse vectors and for arrays of numbers, and False for texts."""
    return sparse.issparse(given) or (isinstance(given, np.ndarray) and given.dtype.kind in "fiu")


class SparseTexts(EncodedTexts):
    """Tokenized texts whose outputs are kept as sparse vectors."""

    def compact(self, output):
        return inverted_index.as_rows(output)


class SparsePipeline(TextPipeline):
    """Pipeline of `heads.sparse_embedder`. Its results are sparse arrays."""

    options = ("prompt", "max_terms")
    long_texts_options = ("truncate", "error")

    def encode(self, inputs, **options):
        """Return the sparse vectors of texts; the same as a call of the pipeline.

        Args:
            inputs: As for `__call__`.
            **options: `batch_size` and `show_progress`, see `__call__`. `prompt`: the name of one
                of the model's prompts, or a text that comes before each text; by default the
                model's default prompt, and `""` for none. `max_terms`: keep that many largest
                weights of each vector.

        Returns:
            A `scipy.sparse.csr_array` (texts, vocab), float32; (1, vocab) for one text.
        """
        return self(inputs, **options)

    def explain(self, text, top_k=10):
        """Return the terms of a text or of a vector with their weights, the largest first.

        Args:
            text: A text, or a sparse vector (1, vocab), such as the product of two vectors,
                `query.multiply(document)`: what each term adds to the score.
            top_k: Number of terms; `None` for all.

        Returns:
            A list of tuples of a token and a float.

        Raises:
            ValueError: If there are several vectors, or `top_k` is below 1.
        """
        if top_k is not None:
            top_k = as_integer("top_k", top_k, 1)
        if not isinstance(text, str) and not _are_vectors(text):
            raise ValueError(f"explain takes one text or vector; received {shown(text)}")
        vector = self.encode(text) if isinstance(text, str) else inverted_index.as_rows(text)
        if vector.shape[0] != 1:
            raise ValueError(f"explain takes one text or vector; received {vector.shape[0]}")
        vocabulary = self.predictor.task_model.tokenizer.vocabulary
        names = [*vocabulary, *(f"[{index}]" for index in range(len(vocabulary), vector.shape[1]))]
        order = np.argsort(-vector.data, kind="stable")[:top_k]
        return [(names[vector.indices[index]], float(vector.data[index])) for index in order]

    def search(self, queries, corpus, *, top_k=10, prompt=None):
        """Find the texts of a corpus with the largest dot products with each query.

        Args:
            queries: A text, several, or their vectors.
            corpus: The vectors of the texts. For many calls, give `vectors.tocsc()`, the inverted
                index.
            top_k: Number of texts per query. Only texts that share a term with the query are found.
            prompt: Prompt of the queries, see `encode`.

        Returns:
            For each query a list of dicts with `index` in the corpus and `score`, the best first;
            for one text its list. Texts of the same score are in the order of the corpus.

        Raises:
            ValueError: If the vectors have another width than those of the queries.
        """
        if not _are_vectors(corpus):
            raise ValueError("corpus must be vectors; call encode on its texts first")
        vectors = queries if _are_vectors(queries) else self.encode(queries, prompt=prompt)
        rows = []
        for indices, scores in zip(*inverted_index.top_k(vectors, corpus, top_k), strict=True):
            rows.append(
                [
                    {"index": int(index), "score": float(score)}
                    for index, score in zip(indices, scores, strict=True)
                    if index >= 0
                ]
            )
        return rows[0] if isinstance(queries, str) else results.Results(rows)

    def _rows(self, inputs, text_pair=None, **others):
        rows, _ = super()._rows(inputs, text_pair, **others)
        return rows, False  # the vector of a single text is an array (1, vocab), too

    def _run_iterator(self, inputs, call):
        for vector in super()._run_iterator(inputs, call):
            yield vector.reshape(1, -1)

    def _run_dataframe(self, frame, named, call):
        raise ValueError("a DataFrame cannot hold sparse vectors; give a column of texts")

    def _answers(self, examples, call, on_batch=None):
        if isinstance(examples, Examples):
            prompt = prompt_of(self.output, call.options.get("prompt"))
            vectors = self._vectors([prompt + text for text in examples.texts], call, on_batch)
            max_terms = call.options.get("max_terms")
            if max_terms is None:
                return vectors
            return [inverted_index.strongest(vector, max_terms) for vector in vectors]
        rows = examples.prompted_rows(prompt_of(self.output))
        vectors = self._vectors([text for row in rows for text in row], call, on_batch)
        size = len(rows[0])
        width = self.predictor.task_model.width
        parts = [vectors[start : start + size] for start in range(0, len(vectors), size)]
        return [inverted_index.stack(part, width) for part in parts]

    def _vectors(self, texts, call, on_batch):
        """Return the sparse vector of each text, a list of arrays (1, vocab)."""
        model = self.predictor.task_model
        encoded = SparseTexts(model.tokenizer, [texts], model.max_length)
        self._count(encoded, len(texts), call)
        outputs = self.predictor.outputs(encoded, batch_size=call.batch_size, on_batch=on_batch)
        return [inverted_index.as_rows(output) for output in outputs]

    def _joined(self, answers):
        return inverted_index.stack(answers, self.predictor.task_model.width)
