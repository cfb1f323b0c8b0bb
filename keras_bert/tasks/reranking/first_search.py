"""The first search, whose documents are reranked: embeddings, or BM25."""

import numpy as np

from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.packages import import_extra
from keras_bert.tasks.embedding import nearest
from keras_bert.tasks.embedding.pipeline import EmbeddingPipeline

# Words of one character count, since Chinese and Korean have many.
_WORDS = r"(?u)\w+"


def find(retriever, corpus, queries, top_k, prompts=None):
    """Return the indices of the best texts of a corpus for each query, int (queries, top_k).

    `corpus` and `queries` are lists of texts. `retriever` is the pipeline of an embedder, or
    `"bm25"`. `prompts` are texts before the queries and before the corpus, for embeddings; `None`
    takes the model's default prompt.
    """
    top_k = min(as_integer("top_k", top_k, 1), len(corpus))
    if isinstance(retriever, EmbeddingPipeline):
        before_query, before_document = prompts or (None, None)
        vectors = retriever.encode(corpus, prompt=before_document)
        query_vectors = retriever.encode(queries, prompt=before_query)
        indices, _ = nearest.top_k(query_vectors, vectors, top_k, retriever.output.similarity)
        return indices
    if retriever != "bm25":
        raise ValueError(
            f'retriever must be "bm25" or the keras_bert.pipeline of an embedder; received '
            f"{retriever!r:.80}"
        )
    bm25s = import_extra("bm25s", "search", "BM25")
    options = {"stopwords": None, "token_pattern": _WORDS, "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(corpus, **options), show_progress=False)
    tokens = bm25s.tokenize(queries, **options, return_ids=False)
    indices, _ = index.retrieve(tokens, k=top_k, show_progress=False)
    return np.asarray(indices)
