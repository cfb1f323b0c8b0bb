"""The signatures of classifiers and regressors."""

import tensorflow as tf

from keras_bert.tasks.text_serving import of_texts


def classifier(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.classifier` and `heads.next_sentence`.

    Inputs of `serving_default`:
        text: string (batch,)
        text_pair: string (batch,), if the model takes pairs
    Outputs:
        label: string (batch,)
        score: float32 (batch,), probability of the label
        probabilities: float32 (batch, labels), in the order of `assets/labels.txt`
    Outputs if each text has any number of labels:
        probabilities: float32 (batch, labels)
        chosen: bool (batch, labels), True if the probability is at least 0.5
    """
    labels = tf.constant(output.labels)

    def predict_probabilities(inputs):
        logits = predict(inputs)
        return tf.sigmoid(logits) if output.multi_label else tf.nn.softmax(logits)

    def answer(probabilities):
        if output.multi_label:
            return {"probabilities": probabilities, "chosen": probabilities >= 0.5}
        return {
            "label": tf.gather(labels, tf.argmax(probabilities, axis=-1)),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }

    return of_texts(output, preprocessor, max_sequence_length, predict_probabilities, answer)


def regressor(predict, output, preprocessor, max_sequence_length):
    """Make the signatures of `heads.regressor`.

    Inputs of `serving_default`:
        text: string (batch,)
        text_pair: string (batch,), if the model takes pairs
    Outputs:
        score: float32 (batch,), the predicted number
    """
    return of_texts(
        output,
        preprocessor,
        max_sequence_length,
        predict,
        answer=lambda scores: {"score": scores[:, 0]},
    )
