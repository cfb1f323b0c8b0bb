"""The signatures of rerankers."""

from keras_bert.tasks.text_serving import of_texts


def reranker(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.reranker`.

    Inputs of `serving_default`:
        query: string (batch,)
        document: string (batch,)
    Outputs:
        score: float32 (batch,), a higher one is better
    """
    return of_texts(
        output,
        preprocessor,
        max_sequence_length,
        predict,
        answer=lambda scores: {"score": scores[:, 0]},
        names=("query", "document"),
    )
