"""Layers of the task heads."""

import keras
from keras import ops

from keras_bert import keras_private
from keras_bert.layers.activations import activation as activation_function
from keras_bert.layers.encoder_layers import MASKED_LOGIT, gather_positions
from keras_bert.layers.initializers import initializer
from keras_bert.runtime import label_types
from keras_bert.runtime.arguments import LONG_TEXTS, SIMILARITIES
from keras_bert.runtime.escaping import check_name


@keras.saving.register_keras_serializable(package="keras_bert")
class TaskOutput(keras.layers.Layer):
    """Last layer of a head: logits in float32, with the task and its labels.

    It has no weights. Its config keeps the task and the labels in a saved model.

    Args:
        task: Name of the function in `keras_bert.heads` that built the model.
        labels: Names of the classes, in the order of the logits, or `None`.
        pairs: If True, the model reads pairs of texts.
        multi_label: If True, a text can have several classes, or none.
        no_answer: If True, a question can have no answer.
        names: Names of the outputs, one per logit. Defaults to one output with all logits.
        characters: If True, the words to tag are single characters.
        long_texts: `"truncate"`, `"window"` to average the answers for parts of long texts, or
            `"error"`.
        prompts: Dict from names to texts that come before each text to embed, or `None`.
        default_prompt: Name of the prompt that is used by default, or `None`.
        similarity: How to compare embeddings: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`.
        label_type: The type of the labels in results: `"str"`, `"int"`, `"float"` or `"bool"`.
        activation: Name of a Keras activation that is applied to the logits, such as `"sigmoid"`
            for the scores of a cross-encoder, or `None`.

    Raises:
        ValueError: If `long_texts`, the similarity or the default prompt is unknown, or a name is
            empty or has control characters. In a call, if there are not as many logits as labels.

    Example:

    >>> tuple(TaskOutput("classification", labels=["no", "yes"])(keras.ops.ones((1, 2))).shape)
    (1, 2)
    """

    def __init__(
        self,
        task,
        labels=None,
        pairs=False,
        multi_label=False,
        no_answer=False,
        names=None,
        characters=False,
        long_texts="truncate",
        prompts=None,
        default_prompt=None,
        similarity="cosine",
        label_type="str",
        activation=None,
        **kwargs,
    ):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.label_type = label_types.checked(label_type)
        self.task = task
        self.activation = activation
        self._activation_function = activation_function(activation or "linear")
        self.long_texts = long_texts
        self.characters = characters
        self.pairs = pairs
        self.multi_label = multi_label
        self.no_answer = no_answer
        if long_texts not in LONG_TEXTS:
            known = ", ".join(LONG_TEXTS)
            raise ValueError(f"long_texts must be one of {known}; received {long_texts!r:.80}")
        if similarity not in SIMILARITIES:
            known = ", ".join(SIMILARITIES)
            raise ValueError(f"similarity must be one of {known}; received {similarity!r:.80}")
        if not isinstance(prompts or {}, dict) or not all(
            isinstance(part, str) for pair in (prompts or {}).items() for part in pair
        ):
            raise ValueError(
                f"prompts must be a dict from names to texts; received {prompts!r:.80}"
            )
        for prompt_name in prompts or {}:
            check_name(prompt_name, "the name of a prompt")
        if default_prompt is not None and default_prompt not in (prompts or {}):
            known = ", ".join(prompts or {}) or "none"
            raise ValueError(
                f"the prompts are {known}; received default_prompt={default_prompt!r:.80}"
            )
        self.default_prompt, self.similarity = default_prompt, similarity
        self._prompts = tuple((prompts or {}).items())
        # Tuples, because Keras replaces list attributes with tracked lists.
        self._labels = None if labels is None else tuple(str(label) for label in labels)
        self._names = None if names is None else tuple(names)
        for label in self._labels or ():
            check_name(label, "a label")
        for output_name in self._names or ():
            check_name(output_name, "the name of an output")
        self.supports_masking = True  # pass on masks of Keras layers in a user's model
        self.built = True

    @property
    def labels(self):
        """List of the class names, or `None`."""
        return None if self._labels is None else list(self._labels)

    @property
    def prompts(self):
        """Dict from the names of prompts to their texts."""
        return dict(self._prompts)

    def call(self, logits):
        """Return logits (batch, ..., labels) in float32; with names, a dict of (batch, ...)."""
        if self._labels is not None and logits.shape[-1] != len(self._labels):
            raise ValueError(
                f"the number of labels must be the number of logits; received "
                f"{len(self._labels)} labels for {logits.shape[-1]} logits"
            )
        logits = self._activation_function(ops.cast(logits, "float32"))
        if self._names is None:
            return logits
        return {name: logits[..., index] for index, name in enumerate(self._names)}

    def compute_output_spec(self, logits):
        if self._names is None:
            return keras.KerasTensor(logits.shape, dtype="float32")
        return {name: keras.KerasTensor(logits.shape[:-1], "float32") for name in self._names}

    def get_config(self):
        config = {
            **super().get_config(),
            "task": self.task,
            "labels": self.labels,
            "pairs": self.pairs,
            "multi_label": self.multi_label,
            "no_answer": self.no_answer,
            "names": None if self._names is None else list(self._names),
            "characters": self.characters,
            "long_texts": self.long_texts,
            "prompts": self.prompts,
            "default_prompt": self.default_prompt,
            "similarity": self.similarity,
            "activation": self.activation,
        }
        if self.label_type != "str":
            config["label_type"] = self.label_type
        return config


@keras.saving.register_keras_serializable(package="keras_bert")
class MaskedLMHead(keras.layers.Layer):
    """Vectors to logits over the vocabulary, with the encoder's word embeddings as weights.

    It applies a dense layer, the activation and LayerNorm, then a matmul with the transposed
    embeddings, and a bias. In a functional model the layer finds the encoder that produced its
    input, so the weights are also tied after a reload.

    Source: `get_masked_lm_output` in google-research/bert `run_pretraining.py`.

    Args:
        vocab_size: Number of tokens in the vocabulary.
        hidden_act: Activation, see `activation`.
        layer_norm_eps: Epsilon of LayerNorm.
        initializer_range: Standard deviation of the initial weights.
        tied: If False, the output matrix is a weight of this layer, not the word embeddings.

    Raises:
        ValueError: In a call of a tied layer, if no encoder produced the input and `tie_to` was not
            called.

    Example:

    >>> from keras_bert.layers import Embeddings
    >>> embeddings = Embeddings(vocab_size=10, hidden_size=4, max_position_embeddings=8)
    >>> embeddings.build((None, None), (None, None))
    >>> layer = MaskedLMHead(vocab_size=10)
    >>> layer.tie_to(embeddings.word_embeddings)
    >>> tuple(layer(keras.ops.ones((1, 3, 4)), keras.ops.array([[0, 2]])).shape)
    (1, 2, 10)
    """

    def __init__(
        self,
        vocab_size,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
        initializer_range=0.02,
        tied=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_act = hidden_act
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.tied = tied
        self.activation = activation_function(hidden_act)
        object.__setattr__(self, "_word_embeddings", None)

    def tie_to(self, word_embeddings):
        """Use the weights of the encoder's `keras.layers.Embedding` as output weights."""
        # Bypass Keras' tracking: the variable must belong to the encoder only.
        object.__setattr__(self, "_word_embeddings", word_embeddings)

    def __call__(self, sequence_output, *args, **kwargs):
        if not self.tied:
            return super().__call__(sequence_output, *args, **kwargs)
        encoder = keras_private.producing_operation(sequence_output)
        if hasattr(encoder, "get_layer"):
            self.tie_to(encoder.get_layer("embeddings").word_embeddings)
        if self._word_embeddings is None:
            raise ValueError(
                "MaskedLMHead needs the word embeddings of an encoder. Pass it the "
                "sequence_output of a BertEncoder, or call tie_to first."
            )
        return super().__call__(sequence_output, *args, **kwargs)

    def build(self, sequence_output_shape, masked_lm_positions_shape=None):
        hidden_size = sequence_output_shape[-1]
        self.transform = keras.layers.Dense(
            hidden_size,
            kernel_initializer=initializer(self.initializer_range),
            dtype=self.dtype_policy,
            name="transform",
        )
        self.transform.build(sequence_output_shape)
        self.layer_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )
        self.layer_norm.build(sequence_output_shape)
        self.output_bias = self.add_weight(
            shape=(self.vocab_size,), initializer="zeros", name="output_bias"
        )
        if not self.tied:
            self.output_embeddings = self.add_weight(
                shape=(self.vocab_size, hidden_size),
                initializer=initializer(self.initializer_range),
                name="output_embeddings",
            )
        self.built = True

    def call(self, sequence_output, masked_lm_positions=None):
        """Predict tokens.

        Args:
            sequence_output: Floats (batch, seq, hidden).
            masked_lm_positions: Integers (batch, predictions), the positions to predict.
                Defaults to all positions.

        Returns:
            Logits (batch, predictions or seq, vocab).
        """
        return self.logits(sequence_output, masked_lm_positions, self._output_matrix())

    def logits(self, sequence_output, masked_lm_positions, output_matrix):
        """Compute `call` with another output matrix than the word embeddings, (vocab, hidden)."""
        x = sequence_output
        if masked_lm_positions is not None:
            x = gather_positions(x, masked_lm_positions)
        x = self.layer_norm(self.activation(self.transform(x)))  # (batch, predictions, hidden)
        # Reshape to two dimensions: with three, XLA computes the gradient of the logits, the
        # largest tensor of a training step, twice (for the bias and for the matrix).
        batch, predictions, hidden = ops.shape(x)
        rows = ops.reshape(x, (batch * predictions, hidden))
        logits = ops.matmul(rows, ops.transpose(output_matrix))
        logits = logits + ops.cast(self.output_bias, logits.dtype)
        return ops.reshape(logits, (batch, predictions, self.vocab_size))

    def _output_matrix(self):
        """Return the output matrix (vocab, hidden), with LoRA applied and dequantized."""
        if not self.tied:
            return ops.cast(self.output_embeddings, self.compute_dtype)
        embeddings = self._word_embeddings
        if embeddings.quantization_mode is None:
            return ops.cast(embeddings.embeddings, self.compute_dtype)
        table = embeddings(ops.arange(embeddings.input_dim, dtype="int32"))
        return ops.cast(table, self.compute_dtype)

    def compute_output_shape(self, sequence_output_shape, masked_lm_positions_shape=None):
        shape = masked_lm_positions_shape or sequence_output_shape
        return (*shape[:2], self.vocab_size)

    def get_config(self):
        config = super().get_config()
        if self.built and self.transform.quantization_mode is not None:
            # Only the nested dense layer is quantized, and this layer's own policy omits that.
            policy = keras.dtype_policies.DTypePolicyMap(
                default_policy=self.dtype_policy,
                policy_map={self.transform.path: self.transform.dtype_policy},
            )
            config["dtype"] = keras.dtype_policies.serialize(policy)
        return {
            **config,
            "vocab_size": self.vocab_size,
            "hidden_act": self.hidden_act,
            "layer_norm_eps": self.layer_norm_eps,
            "initializer_range": self.initializer_range,
            "tied": self.tied,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class SentencePooling(keras.layers.Layer):
    """One vector per text from the vectors of its tokens.

    Computed in float32 under every dtype policy. A row of padding gives zeros.

    Source: Reimers and Gurevych (2019), Sentence-BERT, section 3; the modes are those of
    sentence-transformers.

    Args:
        mode: `"mean"` or `"max"` over the tokens; `"cls"`, the first token; `"lasttoken"`;
            `"mean_sqrt_len_tokens"`, the sum divided by the square root of the number of tokens;
            or `"weightedmean"`, whose weights are the positions, from 1. Of a list of modes, the
            vectors are concatenated.
        normalize: If True, scale the vectors to length 1.

    Raises:
        ValueError: If the mode is unknown.

    Example:

    >>> layer = SentencePooling("mean", normalize=False)
    >>> x = keras.ops.array([[[1.0], [3.0], [9.0]]])
    >>> float(layer(x, keras.ops.array([[1, 1, 0]]))[0, 0])
    2.0
    """

    MODES = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")

    def __init__(self, mode="mean", normalize=True, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        modes = [mode] if isinstance(mode, str) else list(mode)
        for each in modes:
            if each not in self.MODES:
                raise ValueError(
                    f"mode must be one of {', '.join(self.MODES)}; received {each!r:.80}"
                )
        if not modes:
            raise ValueError("mode must not be an empty list")
        # A tuple, because Keras replaces list attributes with tracked lists.
        self._modes = tuple(modes)
        self.normalize = normalize
        self.built = True

    @property
    def mode(self):
        """The mode, or a tuple of several."""
        return self._modes[0] if len(self._modes) == 1 else self._modes

    def call(self, sequence_output, input_mask):
        """Pool floats (batch, seq, hidden) with a mask (batch, seq) to (batch, hidden * modes)."""
        x = ops.cast(sequence_output, "float32")
        visible = ops.not_equal(input_mask, 0)[:, :, None]  # (batch, seq, 1)
        pooled = [self._pool(mode, x, visible) for mode in self._modes]
        x = pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)
        return unit_length(x) if self.normalize else x

    def _pool(self, mode, x, visible):
        if mode == "cls":
            return ops.where(visible[:, 0], x[:, 0], 0.0)
        if mode == "max":
            x = ops.max(ops.where(visible, x, MASKED_LOGIT), axis=1)
            return ops.where(ops.any(visible, axis=1), x, 0.0)
        weights = ops.cast(visible, "float32")  # (batch, seq, 1)
        position = ops.arange(1, ops.shape(x)[1] + 1, dtype="float32")[:, None] * weights
        if mode == "lasttoken":
            last = ops.max(position, axis=1, keepdims=True)
            weights = ops.cast(ops.equal(position, last), "float32") * weights
        elif mode == "weightedmean":
            weights = position
        total = ops.sum(ops.where(visible, x, 0.0) * weights, axis=1)
        count = ops.sum(weights, axis=1)  # (batch, 1)
        if mode == "mean_sqrt_len_tokens":
            count = ops.sqrt(count)
        return total / ops.maximum(count, 1.0)

    def compute_output_shape(self, sequence_output_shape, input_mask_shape):
        return (sequence_output_shape[0], sequence_output_shape[-1] * len(self._modes))

    def get_config(self):
        mode = self.mode if len(self._modes) == 1 else list(self._modes)
        return {**super().get_config(), "mode": mode, "normalize": self.normalize}


@keras.saving.register_keras_serializable(package="keras_bert")
class WithoutDropout(keras.layers.Layer):
    """Wrapper that always calls its layer with `training=False`.

    In a functional model, `layer(x, training=False)` does not do that: a call of the model in
    training passes `training=True` to all layers.

    Args:
        layer: A layer or model.

    Example:

    >>> layer = WithoutDropout(keras.layers.Dropout(0.9))
    >>> float(layer(keras.ops.ones((1, 1)), training=True)[0, 0])
    1.0
    """

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, inputs_shape):
        if not self.layer.built:
            self.layer.build(inputs_shape)
        self.built = True

    def call(self, inputs, training=None):
        return self.layer(inputs, training=False)

    def compute_output_spec(self, inputs, training=None):
        return self.layer.compute_output_spec(inputs)

    def get_config(self):
        return {**super().get_config(), "layer": keras.saving.serialize_keras_object(self.layer)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        layer = keras.saving.deserialize_keras_object(config["layer"], custom_objects)
        return cls(**{**config, "layer": layer})


@keras.saving.register_keras_serializable(package="keras_bert")
class WeightedSum(keras.layers.Layer):
    """Learned weighted sum of layer outputs: softmax weights, times a learned scale.

    Source: Peters et al. (2018), ELMo, equation 1; "weighted sum" in table 7 of the BERT paper.

    Example:

    >>> layer = WeightedSum()
    >>> float(layer([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])[0, 0])
    2.0
    """

    def build(self, layers_shape):
        self.mix = self.add_weight(shape=(len(layers_shape),), initializer="zeros", name="mix")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.built = True

    def call(self, layers):
        """Sum a list of tensors of one shape."""
        weights = ops.exp(self.mix) / ops.sum(ops.exp(self.mix))  # (layers,)
        mixed = sum(ops.cast(weights[index], x.dtype) * x for index, x in enumerate(layers))
        return ops.cast(self.scale, mixed.dtype) * mixed

    def compute_output_shape(self, layers_shape):
        return layers_shape[0]

    def get_config(self):
        return super().get_config()  # Keras cannot generate it if `dtype` is a policy object


@keras.saving.register_keras_serializable(package="keras_bert")
class MergeChoices(keras.layers.Layer):
    """Reshape (batch, choices, seq) to (batch * choices, seq).

    Example:

    >>> tuple(MergeChoices()(keras.ops.ones((2, 3, 4), dtype="int32")).shape)
    (6, 4)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, ids):
        batch, choices, seq = ops.shape(ids)
        return ops.reshape(ids, (batch * choices, seq))

    def compute_output_spec(self, ids):
        batch, choices, seq = ids.shape
        rows = None if None in (batch, choices) else batch * choices
        return keras.KerasTensor((rows, seq), dtype=ids.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class SplitChoices(keras.layers.Layer):
    """Reshape logits (batch * choices, 1) to (batch, choices), the shape of the given ids.

    Args:
        keep_width: If True, reshape vectors (batch * choices, width) to (batch, choices, width).

    Example:

    >>> ids = keras.ops.ones((2, 3, 4), dtype="int32")
    >>> tuple(SplitChoices()(keras.ops.ones((6, 1)), ids).shape)
    (2, 3)
    """

    def __init__(self, keep_width=False, **kwargs):
        super().__init__(**kwargs)
        self.keep_width = keep_width
        self.built = True

    def call(self, logits, ids):
        return ops.reshape(logits, self.compute_output_shape(logits.shape, ops.shape(ids)))

    def compute_output_shape(self, logits_shape, ids_shape):
        width = logits_shape[-1:] if self.keep_width else ()
        return (*ids_shape[:2], *width)

    def get_config(self):
        return {**super().get_config(), "keep_width": self.keep_width}


@keras.saving.register_keras_serializable(package="keras_bert")
class GatherTexts(keras.layers.Layer):
    """Collect the vectors of texts from packed sequences.

    Example:

    >>> vectors = keras.ops.reshape(keras.ops.arange(4.0), (2, 2, 1))
    >>> tuple(GatherTexts()(vectors, keras.ops.array([[3, 0]])).shape)
    (1, 2, 1)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, vectors, numbers):
        """Return vectors (rows, texts, width) for numbers (rows, texts) of (batch, n, width)."""
        flat = ops.reshape(vectors, (-1, vectors.shape[-1]))
        return ops.take(flat, ops.cast(numbers, "int32"), axis=0)

    def compute_output_shape(self, vectors_shape, numbers_shape):
        return (*numbers_shape, vectors_shape[-1])


@keras.saving.register_keras_serializable(package="keras_bert")
class UnitLength(keras.layers.Layer):
    """Scale vectors to length 1.

    In a step that XLA compiles, `keras.layers.UnitNormalization` has a NaN gradient at a vector of
    zeros; this layer has none.

    Example:

    >>> tuple(UnitLength()(keras.ops.array([[3.0, 4.0]])).shape)
    (1, 2)
    """

    def __init__(self, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.built = True

    def call(self, vectors):
        return unit_length(ops.cast(vectors, "float32"))

    def compute_output_shape(self, vectors_shape):
        return vectors_shape


def unit_length(x):
    """Scale vectors, floats (..., width), to length 1.

    Example:

    >>> ops.convert_to_numpy(unit_length(ops.array([[3.0, 4.0], [0.0, 0.0]]))).round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    # Clip before the square root, which has no gradient at 0.
    return x / ops.sqrt(ops.maximum(ops.sum(x * x, axis=-1, keepdims=True), 1e-24))
