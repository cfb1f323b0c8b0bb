"""The BERT encoder, a functional `keras.Model`."""

import contextlib
import contextvars
import functools
from collections.abc import Iterable
from typing import Any

import keras

from keras_bert import keras_private
from keras_bert.layers import Embeddings, Pooler, SentencePooling, TransformerBlock
from keras_bert.runtime.arguments import as_integer, as_list, check_one_of
from keras_bert.runtime.escaping import shown
from keras_bert.token_model import TokenModel

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
_OPTIONAL_INPUTS = (
    "attention_mask", "position_ids", "word_embeddings", "cls_positions", "output_positions"
)  # fmt: skip
# Layers by name that the encoder runs in this thread, in place of its own ones; see `computing_in`.
_layers_in_use: contextvars.ContextVar = contextvars.ContextVar("layers", default=None)


@keras.saving.register_keras_serializable(package="keras_bert")
class BertEncoder(TokenModel):
    """BERT encoder (Devlin et al., 2018): token ids to contextual vectors.

    The arguments are the eleven keys of Google's `bert_config.json`, `layer_norm_eps`,
    `embedding_size` and `pooler_act`. The defaults are BERT-Base, uncased. Inputs and outputs have
    TF-Hub's names.

    Inputs, a dict of integer tensors (batch, seq), where seq is at most `max_position_embeddings`:

    - input_word_ids: Token ids.
    - input_mask: 1 for tokens, 0 for padding.
    - input_type_ids: 0 for the first segment, 1 for the second.

    Optional inputs, not part of `encoder.input`:

    - attention_mask: (batch, seq, seq) as [query, key], nonzero for visible keys. It replaces
      `input_mask`. Use a block-diagonal mask for packed sequences and a triangular mask for
      a left-to-right model.
    - position_ids: (batch, seq), the position of each token in its own text.
    - word_embeddings: Floats (batch, seq, embedding) in place of the word embeddings of
      `input_word_ids`.
    - cls_positions: (batch, texts), the [CLS] positions of packed sequences. `pooled_output` is
      then (batch, texts, hidden).
    - output_positions: (batch, n), the positions that a head reads. The last layer computes only
      these and the [CLS] positions, and `sequence_output` and the last of
      `encoder_outputs` are (batch, n, hidden). n can be 0.

    Outputs, a dict:

    - pooled_output: (batch, hidden), the [CLS] vector after a dense layer with `pooler_act`.
    - sequence_output: (batch, seq, hidden), the output of the last layer.
    - encoder_outputs: A list of (batch, seq, hidden), one per layer.

    Source: `BertModel` in google-research/bert `modeling.py`.

    Args:
        vocab_size: Number of tokens in the vocabulary.
        hidden_size: Width of the model.
        num_hidden_layers: Number of Transformer blocks.
        num_attention_heads: Number of attention heads. Must divide `hidden_size`.
        intermediate_size: Width of the feed-forward layers.
        hidden_act: `"gelu"` (erf), `"gelu_new"` (tanh) or a Keras activation.
        hidden_dropout_prob: Dropout rate of the embeddings and of the sublayers' outputs.
        attention_probs_dropout_prob: Dropout rate of the attention probabilities.
        max_position_embeddings: Maximum sequence length.
        type_vocab_size: Number of segments.
        initializer_range: Standard deviation of the initial weights.
        layer_norm_eps: Epsilon of LayerNorm.
        embedding_size: Width of the embeddings. If it is not `hidden_size`, a dense layer changes
            the width, as in ELECTRA. `None`: `hidden_size`.
        pooler_act: Activation of the pooler, as for `hidden_act`. BERT's is tanh. The classifiers
            of DistilBERT and ELECTRA have ReLU and GELU there.
        rematerialize: If True, training needs less memory and more time, see
            `TransformerBlock`.
        preprocessor: The `Preprocessor` that makes this encoder's inputs. It is available as
            `encoder.preprocessor` and saved with the encoder, vocabulary included.
        pooling: How the model was trained to make one vector of a text: `"mean"`, `"max"` or
            `"cls"`, or another mode of `layers.SentencePooling`. It is the default of
            `heads.classifier` and `heads.regressor`. `None`: BERT's pooler.
        name, dtype, trainable: See `keras.Model`.

    Raises:
        ValueError: If a value is out of range.

    Example:

    >>> bert = BertEncoder(vocab_size=100, hidden_size=8, num_hidden_layers=2,
    ...                    num_attention_heads=2, intermediate_size=16)
    >>> ids = keras.ops.array([[2, 7, 3, 0]])
    >>> out = bert({"input_word_ids": ids, "input_mask": keras.ops.array([[1, 1, 1, 0]]),
    ...             "input_type_ids": keras.ops.zeros_like(ids)})
    >>> tuple(out["sequence_output"].shape), tuple(out["pooled_output"].shape)
    ((1, 4, 8), (1, 8))
    """

    def __init__(
        self,
        vocab_size: int = 30522,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        hidden_act: str = "gelu",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        *,
        embedding_size: int | None = None,
        pooler_act: str = "tanh",
        rematerialize: bool = False,
        preprocessor: Any = None,
        pooling: str | None = None,
        name: str = "bert_encoder",
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        bert_config: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_hidden_layers": num_hidden_layers,
            "num_attention_heads": num_attention_heads,
            "intermediate_size": intermediate_size,
            "hidden_act": hidden_act,
            "hidden_dropout_prob": hidden_dropout_prob,
            "attention_probs_dropout_prob": attention_probs_dropout_prob,
            "max_position_embeddings": max_position_embeddings,
            "type_vocab_size": type_vocab_size,
            "initializer_range": initializer_range,
            "layer_norm_eps": layer_norm_eps,
            "embedding_size": None if embedding_size == hidden_size else embedding_size,
            "pooler_act": pooler_act,
        }
        _validate(bert_config, pooling)
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

        inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in INPUTS}
        new_layer = functools.partial(_new_layer, bert_config, rematerialize, dtype)
        outputs = _forward(new_layer, num_hidden_layers, inputs)
        super().__init__(inputs=inputs, outputs=outputs, name=name)
        # Set after `super().__init__`: Keras passes the value on to the layers.
        self.trainable = trainable
        self.dtype_policy = dtype
        self._bert_config = bert_config
        self.rematerialize = rematerialize
        self.preprocessor = preprocessor
        self.pooling = pooling
        self.fresh_pooler = False
        self.check_vocabulary()

    def __call__(self, inputs, *args, **options):
        if self._bert_config["type_vocab_size"] == 1:
            _check_single_segment(inputs)
        return super().__call__(inputs, *args, **options)

    def call(self, inputs, training=None, mask=None):
        """Encode a batch. The class docstring describes inputs and outputs."""
        layers = _layers_in_use.get()
        if layers is None and not _has_other_keys(inputs):
            return super().call(inputs, training=training, mask=mask)
        # The graph has fixed inputs and its own layers, so run the layers without the graph.
        _check_keys(inputs)
        num_layers = self._bert_config["num_hidden_layers"]
        return _forward(self.get_layer if layers is None else layers.get, num_layers, inputs)

    def compute_output_spec(self, inputs, training=None, mask=None):
        """Return the shapes of the outputs, some of which depend on the optional inputs."""
        if not _has_other_keys(inputs):
            return super().compute_output_spec(inputs, training=training, mask=mask)
        _check_keys(inputs)
        required = {key: inputs[key] for key in INPUTS}
        outputs = dict(super().compute_output_spec(required, training=training, mask=mask))

        def at(positions, output):
            # A new tensor per output: a functional model identifies tensors by identity.
            return keras.KerasTensor((*positions.shape, output.shape[-1]), dtype=output.dtype)

        if (cls_positions := inputs.get("cls_positions")) is not None:
            outputs["pooled_output"] = at(cls_positions, outputs["pooled_output"])
        if (positions := inputs.get("output_positions")) is not None:
            *others, last = outputs["encoder_outputs"]
            outputs["encoder_outputs"] = [*others, at(positions, last)]
            outputs["sequence_output"] = at(positions, last)
        return outputs

    def check_vocabulary(self) -> None:
        """Raise a `ValueError` if the preprocessor's vocabulary is longer than `vocab_size`."""
        if self.preprocessor is None or not self.preprocessor.has_vocabulary:
            return
        tokens = len(self.preprocessor.vocabulary)
        vocab_size = self._bert_config["vocab_size"]
        if tokens > vocab_size:
            raise ValueError(
                f"the vocabulary must have at most vocab_size={vocab_size} tokens; received "
                f"{tokens}"
            )

    @property
    def _call_for_strings(self):
        return "encoder(encoder.preprocessor(texts))"

    @property
    def fresh_pooler(self) -> bool:
        """True while the pooler has its random initial weights, because the checkpoint had none.

        Any training of it, also by a head of the user, changes its bias, which starts at zero. LoRA
        freezes the bias, so a pooler with LoRA counts as trained.
        """
        dense = self.get_layer("pooler").dense
        if not self._has_new_pooler or dense.lora_enabled:
            return False
        return not keras.ops.convert_to_numpy(dense.bias).any()

    @fresh_pooler.setter
    def fresh_pooler(self, value: bool) -> None:
        self._has_new_pooler = value
        self.warns_of_new_pooler = value

    @property
    def bert_config(self) -> dict[str, Any]:
        """Google's eleven keys, `layer_norm_eps`, `embedding_size` and `pooler_act`: a dict."""
        return dict(self._bert_config)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, a dict; with `frozen` and `lora` if there are any."""
        dtype = self.dtype_policy
        if not isinstance(dtype, keras.dtype_policies.DTypePolicyMap):
            # After `quantize`, the policies of the layers differ. A map by path restores each.
            quantized = {
                layer.path: layer.dtype_policy
                for layer in keras_private.all_layers(self, include_self=False)
                if getattr(layer, "quantization_mode", None) is not None
            }
            if quantized:
                dtype = keras.dtype_policies.DTypePolicyMap(
                    default_policy=dtype, policy_map=quantized
                )
        config = {
            **self._bert_config,
            "rematerialize": self.rematerialize,
            "preprocessor": keras.saving.serialize_keras_object(self.preprocessor),
            "pooling": self.pooling,
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(dtype),
            "trainable": self.trainable,
        }
        if ranks := keras_private.lora_layers(self):
            config["lora"] = ranks
        if frozen := keras_private.frozen_parts(self):
            config["frozen"] = frozen
        if self.fresh_pooler:
            config["fresh_pooler"] = True
        return config

    def with_options(self, **options: Any) -> "BertEncoder":
        """Return a copy of the encoder with some options changed.

        Args:
            **options: Arguments of `BertEncoder` that do not change the shapes of the weights,
                such as `dtype`, `rematerialize`, `hidden_act` or `hidden_dropout_prob`.
                Only `keras_bert.load` takes `dtype="auto"`.

        Returns:
            A new `BertEncoder` with copies of the weights and the same preprocessor.

        Raises:
            TypeError: If an option is unknown.
            ValueError: If a value is out of range, or an option changes the shape of a weight.

        Example:

        >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
        ...                       num_attention_heads=2, intermediate_size=8)
        >>> encoder.with_options(hidden_dropout_prob=0.0).get_config()["hidden_dropout_prob"]
        0.0
        """
        config = {**self.get_config(), "preprocessor": self.preprocessor, **options}
        if "trainable" in options:
            config.pop("frozen", None)
        encoder = type(self).from_config(config)
        shapes = [weight.shape for weight in self.weights]
        if shapes != [weight.shape for weight in encoder.weights]:
            raise ValueError(
                "the copy's weights must have the same shapes. Leave out options that change "
                "sizes. A quantized encoder keeps its dtype."
            )
        encoder.set_weights(self.get_weights())
        self._copy_source(encoder)
        return encoder

    def enable_lora(self, rank: int) -> None:
        """Add LoRA to all dense layers: train two small matrices per kernel, and freeze all others.

        Source: Hu et al. (2022), LoRA: low-rank adaptation of large language models.

        Args:
            rank: Width of the small matrices.

        Raises:
            ValueError: If the rank is below 1, or LoRA is already enabled.

        Example:

        >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
        ...                       num_attention_heads=2, intermediate_size=8)
        >>> encoder.enable_lora(2)
        >>> sum(weight.shape[0] * weight.shape[1] for weight in encoder.trainable_weights)
        112
        """
        rank = as_integer("rank", rank, 1)
        layers = keras_private.all_layers(self)
        dense = [layer for layer in layers if isinstance(layer, keras.layers.Dense)]
        if any(layer.lora_enabled for layer in dense):
            raise ValueError("LoRA is already enabled; load the encoder again for another rank")
        for layer in dense:
            layer.enable_lora(rank)
        for variable in self.weights:
            variable.trainable = variable.name.startswith("lora_kernel")

    def keep_layers(self, layers: Iterable[int]) -> "BertEncoder":
        """Return a smaller encoder with some of the transformer layers.

        Args:
            layers: Numbers of the layers to keep, from 0, in increasing order.

        Returns:
            A new `BertEncoder` with copies of the weights and the same preprocessor.

        Raises:
            ValueError: If the numbers are not increasing, a layer does not exist, or LoRA is
                enabled.

        Example:

        >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=3,
        ...                       num_attention_heads=2, intermediate_size=8)
        >>> encoder.keep_layers([0, 2]).bert_config["num_hidden_layers"]
        2
        """
        if any(getattr(layer, "lora_enabled", None) for layer in keras_private.all_layers(self)):
            raise ValueError(
                "keep_layers needs an encoder without LoRA; call it before enable_lora"
            )
        layers = as_list("layers", layers)
        count = self.bert_config["num_hidden_layers"]
        if not layers or layers != sorted({*layers} & {*range(count)}):
            raise ValueError(
                f"layers must be increasing numbers from 0 to {count - 1}; received {shown(layers)}"
            )
        config = {**self.get_config(), "preprocessor": self.preprocessor}
        config.pop("frozen", None)  # the layers have other names in the copy
        encoder = type(self).from_config({**config, "num_hidden_layers": len(layers)})
        pairs = {"embeddings": "embeddings", "pooler": "pooler"}
        pairs |= {f"layer_{new}": f"layer_{old}" for new, old in enumerate(layers)}
        for new, old in pairs.items():
            encoder.get_layer(new).set_weights(self.get_layer(old).get_weights())
            keras_private.freeze_like(self.get_layer(old), encoder.get_layer(new))
        self._copy_source(encoder)
        return encoder

    def _copy_source(self, encoder):
        """Copy the source and the license, which `provenance` keeps for the model card."""
        if hasattr(self, "_card_source"):
            encoder._card_source = self._card_source

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Build an encoder from the result of `get_config`."""
        config = dict(config)
        for key in ("preprocessor", "dtype"):
            if isinstance(config.get(key), dict):
                config[key] = keras.saving.deserialize_keras_object(
                    config[key], custom_objects=custom_objects
                )
        ranks = config.pop("lora", {})
        frozen = config.pop("frozen", ())
        fresh_pooler = config.pop("fresh_pooler", False)
        encoder = cls(**config)
        keras_private.enable_lora(encoder, ranks)
        keras_private.freeze(encoder, frozen)
        encoder.fresh_pooler = fresh_pooler
        return encoder


@contextlib.contextmanager
def computing_in(encoder, policy):
    """Let calls of an encoder compute with another dtype policy; quantized layers keep theirs.

    The encoder and its layers do not change, so other threads see no difference.
    """
    layers = {layer.name: keras_private.copy_with_policy(layer, policy) for layer in encoder.layers}
    token = _layers_in_use.set(layers)
    try:
        yield
    finally:
        _layers_in_use.reset(token)


def _new_layer(config, rematerialize, dtype, name):
    """Build the layer of a name: embeddings, layer_0, layer_1, ..., or pooler."""
    shared = {
        "initializer_range": config["initializer_range"],
        "dtype": dtype,
        "name": name,
    }
    if name == "pooler":
        return Pooler(activation=config["pooler_act"], **shared)
    shared["dropout"] = config["hidden_dropout_prob"]
    shared["layer_norm_eps"] = config["layer_norm_eps"]
    if name == "embeddings":
        sizes = (
            "vocab_size", "hidden_size", "max_position_embeddings", "type_vocab_size",
            "embedding_size",
        )  # fmt: skip
        return Embeddings(**{key: config[key] for key in sizes}, **shared)
    return TransformerBlock(
        num_heads=config["num_attention_heads"],
        intermediate_size=config["intermediate_size"],
        hidden_act=config["hidden_act"],
        attention_dropout=config["attention_probs_dropout_prob"],
        rematerialize=rematerialize,
        **shared,
    )


def _forward(get_layer, num_layers, inputs):
    """Run the layers on a dict of inputs; `get_layer` returns a layer by name.

    Keras passes `training` from the encoder's own call to the layers.
    """
    attention_mask = inputs.get("attention_mask")
    if attention_mask is None:
        attention_mask = inputs["input_mask"]
    cls_positions = inputs.get("cls_positions")
    last_positions = positions_of_last_layer(inputs)  # (batch, texts + n) or None
    x = get_layer("embeddings")(
        inputs["input_word_ids"],
        inputs["input_type_ids"],
        inputs.get("position_ids"),
        word_embeddings=inputs.get("word_embeddings"),
    )
    encoder_outputs = []
    for index in range(num_layers):
        x = get_layer(f"layer_{index}")(
            x,
            attention_mask=attention_mask,
            positions=last_positions if index == num_layers - 1 else None,
        )
        encoder_outputs.append(x)
    pooler = get_layer("pooler")
    if last_positions is None:
        pooled = pooler(x, cls_positions)
    else:
        count = 1 if cls_positions is None else keras.ops.shape(cls_positions)[1]
        pooled = pooler.pool(x[:, 0] if cls_positions is None else x[:, :count])
        encoder_outputs[-1] = x = x[:, count:]
    return {"pooled_output": pooled, "sequence_output": x, "encoder_outputs": encoder_outputs}


def positions_of_last_layer(inputs):
    """Return the positions that the last layer computes, [CLS] first; `None` for all."""
    positions = inputs.get("output_positions")
    cls_positions = inputs.get("cls_positions")
    if positions is None:
        return None
    if cls_positions is None:
        cls_positions = keras.ops.zeros_like(inputs["input_word_ids"][:, :1], dtype="int32")
    cls_positions = keras.ops.cast(cls_positions, "int32")
    positions = keras.ops.cast(positions, "int32")
    return keras.ops.concatenate([cls_positions, positions], axis=1)


def _has_other_keys(inputs):
    return isinstance(inputs, dict) and bool(inputs.keys() - set(INPUTS))


def _check_keys(inputs):
    if inputs.keys() - {*INPUTS, *_OPTIONAL_INPUTS} or set(INPUTS) - inputs.keys():
        raise ValueError(
            f"the inputs must be {', '.join(INPUTS)}, and optionally "
            f"{', '.join(_OPTIONAL_INPUTS)}; received {', '.join(inputs)}"
        )


def _check_single_segment(inputs):
    """Raise a `ValueError` for a pair of texts, if the inputs have values."""
    types = inputs.get("input_type_ids") if isinstance(inputs, dict) else None
    if types is None or not keras_private.has_value(types):
        return
    if keras.ops.any(keras.ops.not_equal(types, 0)):
        raise ValueError(
            "the encoder has one segment, type_vocab_size=1, so it reads single texts; received "
            "input_type_ids above 0, as for a pair of texts"
        )


def _validate(bert_config, pooling):
    """Raise a `ValueError` for an argument of `BertEncoder` out of range; make integers ints."""
    if pooling is not None:
        check_one_of("pooling", pooling, SentencePooling.MODES)
    for key, value in bert_config.items():
        if value is None and key == "embedding_size":
            continue
        if key.endswith(("_size", "_layers", "_heads", "_embeddings")):
            bert_config[key] = as_integer(key, value, 1)
        elif key.endswith("_prob") and not 0 <= value < 1:
            raise ValueError(f"{key} must be at least 0 and below 1; received {shown(value)}")
        elif key == "initializer_range" and not value > 0:
            raise ValueError(f"{key} must be a number above 0; received {shown(value)}")
        elif key == "layer_norm_eps" and not 0 < value < 1:
            raise ValueError(f"{key} must be a number between 0 and 1; received {shown(value)}")
    if bert_config["hidden_size"] % bert_config["num_attention_heads"]:
        raise ValueError(
            "num_attention_heads must divide hidden_size; received "
            f"{bert_config['num_attention_heads']} heads for a width of "
            f"{bert_config['hidden_size']}"
        )
