"""Embedders for the benchmarks of the packages mteb and beir."""

import numpy as np


class BenchmarkModel:
    """An embedder with the methods that mteb and beir call.

    Args:
        embed: A pipeline of an embedder.
        query_prompt: Prompt of queries, see `Embedding.encode`.
        corpus_prompt: Prompt of documents.
        name: Name of the model in the results of mteb, "organization/name".

    Example:

    >>> import keras_bert
    >>> preprocessor = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = keras_bert.BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor, pooling="mean")
    >>> model = BenchmarkModel(keras_bert.pipeline(encoder))
    >>> model.encode_corpus([{"title": "so", "text": "good"}]).shape
    (1, 4)
    """

    def __init__(self, embed, *, query_prompt=None, corpus_prompt=None, name="keras_bert/embedder"):
        self._embed, self._name = embed, name
        self._prompts = {"query": query_prompt, "document": corpus_prompt}

    def encode(self, inputs, *, prompt_type=None, batch_size=32, **options):
        """Return the embeddings of texts, float32 (texts, width); called by mteb.

        `inputs` are batches, dicts with a list `text`.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        prompt = self._prompts.get(getattr(prompt_type, "value", prompt_type))
        return self._embed.encode(texts, prompt=prompt, batch_size=batch_size)

    def encode_queries(self, queries, batch_size=32, **options):
        """Return the embeddings of queries, float32 (queries, width); called by beir."""
        prompt = self._prompts["query"]
        return self._embed.encode(list(queries), prompt=prompt, batch_size=batch_size)

    def encode_corpus(self, corpus, batch_size=32, **options):
        """Return the embeddings of documents, float32 (documents, width); called by beir.

        `corpus` is a list of dicts with `text` and optionally `title`.
        """
        texts = [f"{row.get('title') or ''} {row['text']}".strip() for row in corpus]
        return self._embed.encode(texts, prompt=self._prompts["document"], batch_size=batch_size)

    def similarity(self, first, second):
        """Return the similarities of all vectors, float32 (n, m)."""
        return self._embed.similarity(np.asarray(first), np.asarray(second))

    def similarity_pairwise(self, first, second):
        """Return the similarities of the vectors with the same index, float32 (n,)."""
        pairs = zip(np.asarray(first), np.asarray(second), strict=True)
        return np.array([self._embed.similarity(*pair).item() for pair in pairs], np.float32)

    @property
    def mteb_model_meta(self):
        """The `ModelMeta` of mteb."""
        from mteb.models.model_meta import ModelMeta

        return ModelMeta.create_empty({"name": self._name, "revision": "none"})
