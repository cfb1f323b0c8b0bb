"""The BERT encoder as a functional `keras.Model`."""

import keras

from keras_bert.layers import Embeddings, Pooler, TransformerBlock

_OPTIONAL_INPUTS = ("attention_mask", "position_ids", "first_positions", "output_positions")


@keras.saving.register_keras_serializable(package="keras_bert")
class BertEncoder(keras.Model):
    """BERT (Devlin et al., 2018): token ids in, contextual vectors out.

    The arguments are the keys of Google's `bert_config.json`; the defaults are BERT-Base,
    uncased. Inputs and outputs carry TF-Hub's names.

    Inputs, a dict of integer tensors (batch, seq), any batch, any seq up to
    `max_position_embeddings`:
        input_word_ids: piece ids.
        input_mask: 1 for a real position, 0 for padding.
        input_type_ids: 0 for the first segment, 1 for the second.
    Optional, left out of `encoder.input`:
        attention_mask: (batch, seq, seq) as [query, key], nonzero where a position may look; it
            takes the place of `input_mask`. Block-diagonal for several texts in a row, triangular
            for a model that reads from left to right.
        position_ids: (batch, seq), where each piece stands in its own text.
        first_positions: (batch, texts), where the [CLS]s of several texts stand; `pooled_output`
            is then (batch, texts, hidden).
        output_positions: (batch, n), for a head that reads these positions alone, beside the
            [CLS]s: the last layer computes no others, and `sequence_output` and the last of
            `encoder_outputs` are (batch, n, hidden). n may be 0.

    Outputs, a dict:
        pooled_output: (batch, hidden), the [CLS] vector through a dense layer with tanh.
        sequence_output: (batch, seq, hidden), the last layer.
        encoder_outputs: a list of (batch, seq, hidden), one for each layer.

    Source: `BertModel` in google-research/bert `modeling.py`.

    Args:
        vocab_size: number of pieces.
        hidden_size: width of the model.
        num_hidden_layers: number of Transformer layers.
        num_attention_heads: number of heads; divides `hidden_size`.
        intermediate_size: width of the feed-forward layers.
        hidden_act: `"gelu"` (erf), `"gelu_new"` (tanh) or a Keras activation.
        hidden_dropout_prob: dropout on embeddings and block outputs.
        attention_probs_dropout_prob: dropout on attention probabilities.
        max_position_embeddings: the longest sequence.
        type_vocab_size: number of segments.
        initializer_range: standard deviation of fresh weights.
        layer_norm_eps: added to the variance in LayerNorm.
        rematerialize: trade time for memory in training, see `TransformerBlock`.
        preprocessor: the `Preprocessor` that makes this encoder's inputs. It is kept as
            `encoder.preprocessor` and saved with the encoder, vocabulary included.
        name, dtype, trainable: as for any `keras.Model`.

    Raises:
        ValueError: a size is not a positive whole number, or heads do not divide the width.

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
        vocab_size=30522,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=512,
        type_vocab_size=2,
        initializer_range=0.02,
        layer_norm_eps=1e-12,
        *,
        rematerialize=False,
        preprocessor=None,
        name="bert_encoder",
        dtype=None,
        trainable=True,
    ):
        bert_config = {
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
        }
        _validate(bert_config)
        dtype = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

        inputs = {
            key: keras.Input(shape=(None,), dtype="int32", name=key)
            for key in ("input_word_ids", "input_mask", "input_type_ids")
        }
        x = Embeddings(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            max_position_embeddings=max_position_embeddings,
            type_vocab_size=type_vocab_size,
            dropout=hidden_dropout_prob,
            layer_norm_eps=layer_norm_eps,
            initializer_range=initializer_range,
            dtype=dtype,
            name="embeddings",
        )(inputs["input_word_ids"], inputs["input_type_ids"])
        encoder_outputs = []
        for index in range(num_hidden_layers):
            x = TransformerBlock(
                num_heads=num_attention_heads,
                intermediate_size=intermediate_size,
                hidden_act=hidden_act,
                dropout=hidden_dropout_prob,
                attention_dropout=attention_probs_dropout_prob,
                layer_norm_eps=layer_norm_eps,
                initializer_range=initializer_range,
                rematerialize=rematerialize,
                dtype=dtype,
                name=f"layer_{index}",
            )(x, attention_mask=inputs["input_mask"])
            encoder_outputs.append(x)
        pooled = Pooler(initializer_range=initializer_range, dtype=dtype, name="pooler")(x)
        super().__init__(
            inputs=inputs,
            outputs={
                "pooled_output": pooled,
                "sequence_output": x,
                "encoder_outputs": encoder_outputs,
            },
            name=name,
        )
        self.trainable = trainable  # not through `super`, which has no layers yet to tell
        self.dtype_policy = dtype
        self._bert_config = bert_config
        self.rematerialize = rematerialize
        self.preprocessor = preprocessor
        self.check_vocabulary()

    def call(self, inputs, training=None, mask=None):
        """Encodes a batch, see the class for inputs and outputs.

        Raises:
            ValueError: a key that is no input, or one that is missing.
        """
        if not isinstance(inputs, dict) or not inputs.keys() - self.input.keys():
            return super().call(inputs, training=training, mask=mask)
        # The functional graph has no room for what may be missing, so its layers are called here.
        self._check_inputs(inputs)
        x = self.get_layer("embeddings")(
            inputs["input_word_ids"],
            inputs["input_type_ids"],
            inputs.get("position_ids"),
            training=training,
        )
        attention_mask = inputs.get("attention_mask")
        if attention_mask is None:
            attention_mask = inputs["input_mask"]
        *blocks, last = (
            self.get_layer(f"layer_{index}")
            for index in range(self._bert_config["num_hidden_layers"])
        )
        encoder_outputs = []
        for block in blocks:
            x = block(x, attention_mask=attention_mask, training=training)
            encoder_outputs.append(x)
        pooler, firsts = self.get_layer("pooler"), inputs.get("first_positions")
        if "output_positions" not in inputs:
            x = last(x, attention_mask=attention_mask, training=training)
            pooled = pooler(x, firsts)
        else:
            # The last layer computes the [CLS]s, in front, and what is asked for.
            wanted = keras.ops.cast(inputs["output_positions"], "int32")
            if firsts is None:
                front = keras.ops.zeros_like(inputs["input_word_ids"][:, :1], dtype="int32")
            else:
                front = keras.ops.cast(firsts, "int32")
            x = last(
                x,
                attention_mask=attention_mask,
                positions=keras.ops.concatenate([front, wanted], axis=1),
                training=training,
            )
            count = keras.ops.shape(front)[1]
            pooled = pooler.pool(x[:, 0] if firsts is None else x[:, :count])
            x = x[:, count:]
        encoder_outputs.append(x)
        return {
            "pooled_output": pooled,
            "sequence_output": x,
            "encoder_outputs": encoder_outputs,
        }

    def compute_output_spec(self, inputs, training=None, mask=None):
        """Shapes of the outputs, of which two of the optional inputs change some."""
        if not isinstance(inputs, dict) or not inputs.keys() - self.input.keys():
            return super().compute_output_spec(inputs, training=training, mask=mask)
        self._check_inputs(inputs)
        plain = {key: inputs[key] for key in self.input}
        outputs = super().compute_output_spec(plain, training=training, mask=mask)

        def chosen(output, positions):
            # A new one for each: a functional model tells its tensors by their identity.
            return keras.KerasTensor((*positions.shape, output.shape[-1]), dtype=output.dtype)

        outputs = dict(outputs)
        if (firsts := inputs.get("first_positions")) is not None:
            outputs["pooled_output"] = chosen(outputs["pooled_output"], firsts)
        if (wanted := inputs.get("output_positions")) is not None:
            *layers, last = outputs["encoder_outputs"]
            outputs["encoder_outputs"] = [*layers, chosen(last, wanted)]
            outputs["sequence_output"] = chosen(last, wanted)
        return outputs

    def _check_inputs(self, inputs):
        known = {*self.input, *_OPTIONAL_INPUTS}
        wrong = sorted(inputs.keys() - known) or sorted(self.input.keys() - inputs.keys())
        if wrong:
            raise ValueError(
                f"inputs must be {', '.join(self.input)}, and may be "
                f"{', '.join(_OPTIONAL_INPUTS)}; received {', '.join(inputs)}"
            )

    def check_vocabulary(self):
        """Checks that there is an embedding for each piece of the preprocessor.

        Raises:
            ValueError: the vocabulary is longer than `vocab_size`.
        """
        pieces = getattr(self.preprocessor, "_vocabulary", None) or ()
        vocab_size = self._bert_config["vocab_size"]
        if len(pieces) > vocab_size:
            raise ValueError(
                f"the vocabulary must have at most vocab_size={vocab_size} pieces; received "
                f"{len(pieces)}"
            )

    @property
    def bert_config(self):
        """Google's twelve keys and their values, a dict."""
        return dict(self._bert_config)

    def get_config(self):
        """Returns the constructor's arguments: Google's twelve keys and ours."""
        dtype = self.dtype_policy
        if not isinstance(dtype, keras.dtype_policies.DTypePolicyMap):
            # After `quantize` the layers differ in dtype; a map by path brings each one back.
            quantized = {
                layer.path: layer.dtype_policy
                for layer in self._flatten_layers(include_self=False)
                if getattr(layer, "quantization_mode", None) is not None
            }
            if quantized:
                dtype = keras.dtype_policies.DTypePolicyMap(
                    default_policy=dtype, policy_map=quantized
                )
        return {
            **self._bert_config,
            "rematerialize": self.rematerialize,
            "preprocessor": keras.saving.serialize_keras_object(self.preprocessor),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(dtype),
            "trainable": self.trainable,
        }

    def with_options(self, **options):
        """Makes an encoder with the same weights and preprocessor, and some other options.

        Args:
            **options: arguments of `BertEncoder` that leave the shapes of the weights alone, such
                as `dtype`, `rematerialize`, `hidden_act` or `hidden_dropout_prob`.

        Returns:
            A new `BertEncoder`; this one stays as it is.

        Raises:
            TypeError: no such option.
            ValueError: an impossible value, or one that changes the shape of a weight.

        Example:

        >>> encoder = BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1,
        ...                       num_attention_heads=2, intermediate_size=8)
        >>> encoder.with_options(hidden_dropout_prob=0.0).get_config()["hidden_dropout_prob"]
        0.0
        """
        config = {**self.get_config(), "preprocessor": self.preprocessor, **options}
        encoder = type(self).from_config(config)
        shapes = [[weight.shape for weight in each.weights] for each in (self, encoder)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "the weights are not of the shapes that these options give: either an option "
                "changes them, or the encoder has LoRA's or was quantized, and goes on as it is"
            )
        encoder.set_weights(self.get_weights())
        return encoder

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Builds the encoder that `get_config` described."""
        config = dict(config)
        for key in ("preprocessor", "dtype"):
            if isinstance(config.get(key), dict):
                config[key] = keras.saving.deserialize_keras_object(
                    config[key], custom_objects=custom_objects
                )
        return cls(**config)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _validate(bert_config):
    for key, value in bert_config.items():
        if key.endswith(("_size", "_layers", "_heads", "_embeddings")) and (
            not isinstance(value, int) or isinstance(value, bool) or value < 1
        ):
            raise ValueError(f"{key} must be a whole number of at least 1; received {value!r}")
        if key.endswith("_prob") and not (_is_number(value) and 0 <= value < 1):
            raise ValueError(f"{key} must be at least 0 and below 1; received {value!r}")
        if key in ("initializer_range", "layer_norm_eps") and not (_is_number(value) and value > 0):
            raise ValueError(f"{key} must be a number above 0; received {value!r}")
    if bert_config["hidden_size"] % bert_config["num_attention_heads"]:
        raise ValueError(
            "num_attention_heads must divide hidden_size; received "
            f"{bert_config['num_attention_heads']} heads for a width of "
            f"{bert_config['hidden_size']}"
        )
