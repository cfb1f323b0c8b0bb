"""The head that returns a vector per text, and the model of rows of texts for its training."""

import warnings
from collections.abc import Mapping, Sequence

import keras

from keras_bert.encoder import BertEncoder
from keras_bert.layers import MergeChoices, SentencePooling, SplitChoices, TaskOutput, UnitLength
from keras_bert.model_spec import UNIT_LENGTH, VectorLayer
from keras_bert.model_structure import find_encoder, find_output, find_task
from keras_bert.runtime.escaping import shown
from keras_bert.runtime.warn import level_of_caller
from keras_bert.tasks.head_parts import encoder_inputs
from keras_bert.token_model import TokenModel

_EPSILON = 1e-5  # of PyTorch's layer normalization


def embedder(
    encoder: BertEncoder,
    *,
    pooling: str | Sequence[str] | None = None,
    layers: Sequence[keras.layers.Layer] = (),
    normalize: bool = True,
    prompts: Mapping[str, str] | None = None,
    default_prompt: str | None = None,
    similarity: str = "cosine",
    name: str = "embedder",
) -> keras.Model:
    """Build a model that returns a vector per text, for comparing texts.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3.

    Args:
        encoder: A `BertEncoder`. It is shared, not copied.
        pooling: A mode of `layers.SentencePooling`, such as `"mean"`, `"cls"` or `"max"`, or a list
            of modes. Defaults to the encoder's `pooling`, and without one to `"mean"`.
        layers: Keras layers for the pooled vectors, such as `[keras.layers.Dense(128)]`.
        normalize: If True, scale vectors to length 1, so that their dot product is the cosine.
        prompts: Dict from names to texts that come before each text, for example
            `{"query": "query: "}`.
        default_prompt: Name of the prompt that is used by default.
        similarity: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`; how to compare vectors.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs to float32 (batch, width), where width
        is that of the last layer.

    Raises:
        ValueError: If the pooling or the similarity is unknown.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> embedder(encoder).output_shape
    (None, 4)
    >>> embedder(encoder, pooling=["cls", "mean"], layers=[keras.layers.Dense(3)]).output_shape
    (None, 3)
    """
    inputs = encoder_inputs(encoder)
    x = encoder(inputs)["sequence_output"]  # (batch, seq, hidden)
    pooling = pooling or encoder.pooling or "mean"
    layers = list(layers)
    x = SentencePooling(pooling, normalize and not layers, name="pooling")(x, inputs["input_mask"])
    for layer in layers:
        x = layer(x)
    if normalize and layers:
        x = UnitLength(name="normalize")(x)
    output = TaskOutput(
        "embedding", prompts=prompts, default_prompt=default_prompt, similarity=similarity,
        name="output",
    )  # fmt: skip
    return TokenModel(inputs, output(x), name=name)


def siamese(model: keras.Model, *, name: str = "siamese") -> keras.Model:
    """Build a model that embeds rows of texts, such as queries with their answers, for training.

    Fit it with a loss of `keras_bert.losses`. It shares the weights of the embedder.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3.

    Args:
        model: A model of `embedder`.
        name: Name of the model.

    Returns:
        A functional `keras.Model` from the encoder's inputs, each int32 (batch, texts, seq), to
        float32 (batch, texts, width).

    Raises:
        ValueError: If the model is not one of `embedder`.

    Example:

    >>> from keras_bert import BertEncoder
    >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
    ...                       num_attention_heads=2, intermediate_size=8)
    >>> siamese(embedder(encoder)).output_shape
    (None, None, 4)
    """
    is_model = isinstance(model, keras.Model)
    if not is_model or find_task(model) != "embedding" or len(model.output_shape) != 2:
        received = model.name if is_model else model
        raise ValueError(f"siamese needs a model of heads.embedder; received {shown(received)}")
    return of_rows(model, name=name)


def of_rows(model, *, name="rows"):
    """Return a model of vectors of texts as a model of rows of texts; it shares the weights.

    The inputs are int32 (batch, texts, seq), the output is float32 (batch, texts, width).
    """
    inputs = {key: keras.Input(shape=(None, None), dtype="int32", name=key) for key in model.input}
    merged = {key: MergeChoices(name=f"merge_{key}")(value) for key, value in inputs.items()}
    vectors = model(merged)  # (batch * texts, width)
    split = SplitChoices(keep_width=True, name="split_texts")
    output = TaskOutput.from_config(model.layers[-1].get_config())
    return TokenModel(inputs, output(split(vectors, inputs["input_word_ids"])), name=name)


def warn_of_pooling(encoder):
    """Warn if an encoder does not say how it makes one vector of a text."""
    if encoder.pooling is None:
        warnings.warn(
            f"{encoder.name!r} has no pooling; the mean over the tokens is used. Pass "
            "pooling='mean' to keras_bert.load, or --pooling mean, to hide this warning",
            stacklevel=level_of_caller(),
        )


def as_embedder(model, pooling=None):
    """Return the embedder for a model: itself, or a new head on its encoder."""
    output = find_output(model)
    advice = {
        "reranking": "Call rank of its pipeline (search --rerank)",
        "sparse_embedding": "Call encode or search of its pipeline",
    }
    if output is not None and output.task in advice:
        raise ValueError(
            f"{model.name!r} is a {output.task} model, and its encoder makes no dense vectors of "
            f"texts. {advice[output.task]}; or give its encoder, "
            "keras_bert.heads.find_encoder(model)"
        )
    if output is not None and output.task == "embedding":
        if len(model.output_shape) != 2:
            raise ValueError(
                f"{model.name!r} is a model of heads.siamese, for training; use its embedder"
            )
        own = model.get_layer("pooling").mode
        wanted = tuple(pooling) if isinstance(pooling, list) else pooling
        if wanted not in (None, own):
            raise ValueError(f"{model.name!r} has the pooling {own!r}; received {pooling!r}")
        return model
    if output is None and not isinstance(model, BertEncoder):
        raise ValueError(
            f"{model.name!r} has a custom output, use its `predict` method; embeddings need an "
            "encoder or a model of heads.embedder"
        )
    encoder = find_encoder(model)
    if pooling is None:
        warn_of_pooling(encoder)
    return embedder(encoder, pooling=pooling)


def layers_after_pooling(model):
    """Return the layers between the pooling and the output of an embedder."""
    return model.layers[model.layers.index(model.get_layer("pooling")) + 1 : -1]


def vector_layer_of(layer: keras.layers.Layer, model_name: str) -> VectorLayer:
    """Return the description of a Keras layer after the pooling."""
    is_last_axis = isinstance(layer, keras.layers.UnitNormalization) and layer.axis in (-1, 1)
    if is_last_axis or isinstance(layer, UnitLength):
        return UNIT_LENGTH
    if _is_norm(layer):
        return VectorLayer("layer_norm")
    is_dense = type(layer) is keras.layers.Dense
    is_plain = is_dense and not layer.lora_enabled and not layer.quantization_mode
    activation = keras.activations.serialize(layer.activation) if is_plain else None
    if not isinstance(activation, str):
        raise ValueError(
            f"{model_name!r} has the layer {layer.name!r} after its pooling; this format holds "
            "only UnitLength, LayerNormalization with epsilon=1e-5, and Dense without LoRA or "
            "quantization. Use format='keras'"
        )
    return VectorLayer("dense", layer.units, activation, layer.use_bias)


def _is_norm(layer):
    """Return True for a layer normalization as that of PyTorch."""
    if type(layer) is not keras.layers.LayerNormalization:
        return False
    config = layer.get_config()
    is_plain = config["center"] and config["scale"] and not config.get("rms_scaling")
    return is_plain and config["epsilon"] == _EPSILON and len(layer.gamma.shape) == 1


def keras_layer_of(layer: VectorLayer, index: int) -> keras.layers.Layer:
    """Return a new Keras layer for the description of a layer after the pooling."""
    name = f"{layer.kind}_{index + 1}"
    if layer.kind == "unit_length":
        return UnitLength(name=name)
    if layer.kind == "layer_norm":
        return keras.layers.LayerNormalization(epsilon=_EPSILON, dtype="float32", name=name)
    return keras.layers.Dense(
        layer.units,
        activation=layer.activation,
        use_bias=layer.use_bias,
        dtype="float32",
        name=name,
    )
