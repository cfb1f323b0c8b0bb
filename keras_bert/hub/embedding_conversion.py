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
        "layers": [_keras_layer(index, layer) for index, layer in enumerate(layers, 1)],
        "normalize": normalize,
        "prompts": embedding.prompts,
        "default_prompt": embedding.default_prompt,
        "similarity": embedding.similarity,
    }


def _keras_layer(index, layer):
    """Return the Keras layer of a `DenseLayer`; of `None`, one that scales vectors to length 1."""
    if layer is None:
        return UnitLength(name=f"normalize_{index}")
    dense = keras.layers.Dense(
        layer.kernel.shape[1],
        activation=layer.activation,
        use_bias=layer.bias is not None,
        kernel_initializer=keras.initializers.Constant(layer.kernel),
        dtype="float32",
        name=f"dense_{index}",
    )
    dense.build((None, layer.kernel.shape[0]))
    dense.set_weights([layer.kernel, *([] if layer.bias is None else [layer.bias])])
    return dense


def embedding_modules(model):
    """Return the `EmbeddingModules` of a model of `heads.embedder`."""
    pooling = model.get_layer("pooling")
    output = heads.find_output(model)
    first = model.layers.index(pooling) + 1
    layers = [_module_of(layer, model.name) for layer in model.layers[first:-1]]
    if pooling.normalize:
        layers.insert(0, None)
    modes = pooling.mode if isinstance(pooling.mode, tuple) else (pooling.mode,)
    return EmbeddingModules(
        modes, tuple(layers), output.prompts, output.default_prompt, output.similarity
    )


def _module_of(layer, model_name):
    """Return the `DenseLayer` of a Keras layer; `None` for one that scales vectors to length 1."""
    is_last_axis = isinstance(layer, keras.layers.UnitNormalization) and layer.axis in (-1, 1)
    if is_last_axis or isinstance(layer, UnitLength):
        return None
    is_dense = type(layer) is keras.layers.Dense
    is_plain = is_dense and not layer.lora_enabled and not layer.quantization_mode
    activation = keras.activations.serialize(layer.activation) if is_plain else None
    if not isinstance(activation, str):
        raise ValueError(
            f"{model_name!r} has the layer {layer.name!r} after its pooling; this format holds "
            "only UnitLength, and Dense without LoRA or quantization. Use format='keras'"
        )
    kernel = keras.ops.convert_to_numpy(layer.kernel)
    bias = keras.ops.convert_to_numpy(layer.bias) if layer.use_bias else None
    return DenseLayer(kernel, bias, activation)
