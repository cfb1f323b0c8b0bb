"""Convert between the layers of an embedder and the modules in a checkpoint."""

import keras

from keras_bert import heads
from keras_bert.checkpoints.canonical import DenseLayer, EmbeddingModules
from keras_bert.layers import UnitLength


def embedder_options(embedding):
    """Return the options of `heads.embedder` for an `EmbeddingModules`."""
    layers = list(embedding.layers)
    normalize = bool(layers) and layers[-1] is None
    layers = layers[:-1] if normalize else layers
    return {
        "pooling": list(embedding.pooling),
        "layers": [_dense_or_normalize(*each) for each in enumerate(layers, 1)],
        "normalize": normalize,
        "prompts": embedding.prompts,
        "default_prompt": embedding.default_prompt,
        "similarity": embedding.similarity,
    }


def _dense_or_normalize(number, layer):
    """Return the Keras layer of a `DenseLayer`; of `None`, one that scales vectors to length 1."""
    if layer is None:
        return UnitLength(name=f"normalize_{number}")
    dense = keras.layers.Dense(
        layer.kernel.shape[1],
        activation=layer.activation,
        use_bias=layer.bias is not None,
        kernel_initializer=keras.initializers.Constant(layer.kernel),
        dtype="float32",
        name=f"dense_{number}",
    )
    dense.build((None, layer.kernel.shape[0]))
    dense.set_weights([layer.kernel, *([] if layer.bias is None else [layer.bias])])
    return dense


def embedding_modules(model):
    """Return the `EmbeddingModules` of a model of `heads.embedder`."""
    pooling, output = model.get_layer("pooling"), heads.find_output(model)
    layers: list[DenseLayer | None] = [None] if pooling.normalize else []
    first = model.layers.index(pooling) + 1
    for layer in model.layers[first:-1]:
        is_last_axis = getattr(layer, "axis", -1) in (-1, 1)
        if isinstance(layer, (UnitLength, keras.layers.UnitNormalization)) and is_last_axis:
            layers.append(None)
            continue
        is_dense = type(layer) is keras.layers.Dense and not (
            layer.lora_enabled or layer.quantization_mode
        )
        activation = keras.activations.serialize(layer.activation) if is_dense else None
        if not isinstance(activation, str):
            raise ValueError(
                f"{model.name!r} has the layer {layer.name!r} after its pooling; this format holds "
                "only UnitLength, and Dense without LoRA or quantization. Use format='keras'"
            )
        weights = [keras.ops.convert_to_numpy(weight) for weight in layer.weights]
        bias = weights[1] if layer.use_bias else None
        layers.append(DenseLayer(weights[0], bias, activation))
    modes = pooling.mode if isinstance(pooling.mode, tuple) else (pooling.mode,)
    return EmbeddingModules(
        modes, tuple(layers), output.prompts, output.default_prompt, output.similarity
    )
