"""The signatures of question answering."""

from keras_bert.tasks.question_answering import spans_graph
from keras_bert.tasks.text_serving import Signatures, strings


def span_selector(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.span_selector`.

    Inputs of `serving_default`:
        question: string (batch,)
        context: string (batch,)
    Outputs of `serving_default`:
        answer: string (batch,), a span of the context; "" if there is no answer
        start: int32 (batch,), index of the answer's first byte in the context
        end: int32 (batch,), index after the answer's last byte
        score: float32 (batch,), probability of the answer
    Outputs of `ids`:
        start_logits: float32 (batch, seq)
        end_logits: float32 (batch, seq)
    """

    def from_strings(question, context):
        return spans_graph.answer(
            predict, output.no_answer, preprocessor, max_sequence_length, question, context
        )

    def from_ids(inputs):
        return dict(predict(inputs))

    return Signatures(from_strings, [strings("question"), strings("context")], from_ids)
