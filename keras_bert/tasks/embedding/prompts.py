"""Texts of the data with the prompts that come before them."""

from keras_bert.tasks.embedding.retrieval import RetrievalData


def rows_with_prompts(output, examples):
    """Return the rows of `EmbeddingExamples`, or a row per text of `RetrievalData`, with prompts.

    The default prompt of `output` comes before each text, unless the data has its own prompts.
    """
    prompt = output.prompts.get(output.default_prompt, "")
    if isinstance(examples, RetrievalData):
        prompt = "" if examples.has_prompts else prompt
        return [(prompt + text,) for text in texts_of(examples).values()]
    first, other = examples.prompts or (prompt, prompt)
    return [(first + row[0], *(other + text for text in row[1:])) for row in examples.texts]


def texts_of(examples):
    """Return the texts of `RetrievalData`, a dict with the keys ("query" or "document", id)."""
    queries = {("query", key): text for key, text in examples.queries.items()}
    return queries | {("document", key): text for key, text in examples.corpus.items()}
