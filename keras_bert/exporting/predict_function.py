"""A model as one function from arrays to arrays, fast for batches of all shapes."""

import functools

import keras

from keras_bert import keras_private


def predict_function(model, precision=None):
    """Return a function from the inputs of a batch, a dict of arrays, to the outputs.

    On TensorFlow, it is one graph for batches of all shapes, as in an export. `predict_on_batch` of
    a model that is not compiled would compile a program for each shape. `precision` is
    `"float32"` or `"bfloat16"` for the matmuls of the encoder; `None` keeps its dtype.
    """
    if keras.backend.backend() != "tensorflow":
        if precision is not None:
            raise ValueError(
                f"precision needs KERAS_BACKEND=tensorflow; this process runs "
                f"{keras.backend.backend()}. Load the model with dtype='mixed_bfloat16'"
            )
        return model.predict_on_batch
    import tensorflow as tf

    from keras_bert.exporting import inference_graph

    names = sorted(model.input)
    specs = [tf.TensorSpec([None] * len(model.input[name].shape), tf.int32) for name in names]
    layers = [layer for layer in keras_private.all_layers(model) if hasattr(layer, "lora_enabled")]

    inference_graph.forward_function(model, precision)  # raises an error for a wrong precision

    @functools.lru_cache(maxsize=1)
    def graph(weight_forms):
        forward = inference_graph.forward_function(model, precision)
        traced = tf.function(
            lambda *values: forward(dict(zip(names, values, strict=True))), autograph=False
        )
        return traced.get_concrete_function(*specs)  # a call takes 0.5 ms less than one of `traced`

    def predict(inputs):
        # LoRA and quantization change which variables a layer computes with.
        forms = tuple((layer.lora_enabled, layer.quantization_mode) for layer in layers)
        outputs = graph(forms)(*(tf.constant(inputs[name], tf.int32) for name in names))
        return keras.tree.map_structure(lambda output: output.numpy(), outputs)

    return predict
