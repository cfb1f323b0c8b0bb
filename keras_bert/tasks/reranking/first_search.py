"""The first search, whose documents are reranked: embeddings, or BM25."""

import itertools
import re
import unicodedata

import numpy as np

from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.packages import import_extra
from keras_bert.tasks.embedding import nearest
from keras_bert.tasks.embedding.pipeline import EmbeddingPipeline

# Ideographs, kana and Hangul.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_RUNS = re.compile(f"([{_CJK}]+)|([^\\W{_CJK}]+)")


def find(retriever, corpus, queries, top_k, prompts=None):
    """Return the indices of the best texts of a corpus for each query, a list of int arrays.

    BM25 finds only texts that share a term with the query, so it can find fewer than `top_k`.

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
        return list(indices)
    if retriever != "bm25":
        raise ValueError(
            f'retriever must be "bm25" or the keras_bert.pipeline of an embedder; received '
            f"{shown(retriever)}"
        )
    bm25s = import_extra("bm25s", "search", "BM25")
    terms_per_text = [terms(text) for text in corpus]
    if not any(terms_per_text):
        raise ValueError("no text of the corpus has a word, so bm25 finds nothing. Check the texts")
    index = bm25s.BM25()
    index.index(terms_per_text, show_progress=False)
    indices_per_query, scores_per_query = index.retrieve(
        [terms(query) for query in queries], k=top_k, show_progress=False,
        backend_selection="numpy",
    )  # fmt: skip
    found = []
    for indices, scores in zip(indices_per_query, scores_per_query, strict=True):
        order = np.lexsort((indices, -scores))  # equal scores: in the order of the corpus
        found.append(indices[order[scores[order] > 0]])
    return found


def terms(text):
    """Return the terms of a text for BM25: its words, and pairs of characters in Asian scripts.

    Texts in any Unicode normalization have the same terms.

    Source: the CJKAnalyzer of Apache Lucene.

    Example:

    >>> terms("BERT는 언어 모델")
    ['bert', '는', '언어', '모델']
    """
    found = []
    for characters, word in _RUNS.findall(unicodedata.normalize("NFKC", text).lower()):
        if word:
            found.append(word)
        elif len(characters) == 1:
            found.append(characters)
        else:
            found += map("".join, itertools.pairwise(characters))
    return found
