"""Plain TensorFlow objects with the attributes of the Model Garden's models.

`tests/garden` checks that they have the same keys in a checkpoint and the same names.
"""

import json

import numpy as np
import tensorflow as tf

from keras_bert.checkpoints import canonical

# Every size differs from the others, so that no mix-up of two of them goes unseen.
SIZES = dict(zip(canonical.SIZES, (11, 6, 3, 2, 5, 8, 4), strict=True))
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]


def tree(**attributes):
    module = tf.Module()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


class Maker:
    """Create objects with random variables.

    Args:
        scope: Prefix of the names.
        by_hand: If `True`, the attention's output is part of the block, as in 2020.
        named: If `True`, variables have names.
        seed: Seed of the generator.
        **sizes: Overrides of `SIZES`.
    """

    def __init__(self, scope="", by_hand=False, named=True, seed=0, **sizes):
        self.scope, self.by_hand, self.named = scope, by_hand, named
        self.random = np.random.default_rng(seed)
        sizes = {**SIZES, **sizes}
        self.vocab, self.hidden, self.layers, self.heads, self.inner, self.positions, self.types = (
            sizes[key] for key in canonical.SIZES
        )
        self.size = self.hidden // self.heads

    def variable(self, name, *shape):
        value = self.random.normal(size=shape).astype("float32")
        return tf.Variable(value, name=self.scope + name if self.named else None)

    def dense(self, name, kernel, bias):
        return tree(
            kernel=self.variable(f"{name}/kernel", *kernel),
            bias=self.variable(f"{name}/bias", *bias),
        )

    def norm(self, name):
        return tree(
            gamma=self.variable(f"{name}/gamma", self.hidden),
            beta=self.variable(f"{name}/beta", self.hidden),
        )

    def block(self, i):
        name, by_head = f"transformer/layer_{i}", (self.heads, self.size)
        attention = tree(
            **{
                f"_{part}_dense": self.dense(
                    f"{name}/self_attention/{part}", (self.hidden, *by_head), by_head
                )
                for part in ("query", "key", "value")
            }
        )
        block = tree(_attention_layer=attention)
        output = f"self_attention{'' if self.by_hand else '/attention'}_output"
        output = self.dense(f"{name}/{output}", (*by_head, self.hidden), (self.hidden,))
        setattr(
            *((block, "_attention_output_dense") if self.by_hand else (attention, "_output_dense")),
            output,
        )
        block._attention_layer_norm = self.norm(f"{name}/self_attention_layer_norm")
        if not self.by_hand:
            block._attention_layer_norm_kv = block._attention_layer_norm
        block._intermediate_dense = self.dense(
            f"{name}/intermediate", (self.hidden, self.inner), (self.inner,)
        )
        block._output_dense = self.dense(
            f"{name}/output", (self.inner, self.hidden), (self.hidden,)
        )
        block._output_layer_norm = self.norm(f"{name}/output_layer_norm")
        return block

    def layers_with_weights(self):
        """Return the layers in the order of a functional encoder."""
        positions = self.variable("position_embedding/embeddings", self.positions, self.hidden)
        return [
            tree(embeddings=self.variable("word_embeddings/embeddings", self.vocab, self.hidden)),
            tree(embeddings=positions, _position_embeddings=positions),
            tree(embeddings=self.variable("type_embeddings/embeddings", self.types, self.hidden)),
            self.norm("embeddings/layer_norm"),
            *(self.block(i) for i in range(self.layers)),
            self.dense("pooler_transform", (self.hidden, self.hidden), (self.hidden,)),
        ]

    def encoder(self):
        """Return an encoder like `BertEncoderV2`."""
        word, position, kind, norm, *blocks, pooler = self.layers_with_weights()
        return tree(
            _embedding_layer=word,
            _position_embedding_layer=position,
            _type_embedding_layer=kind,
            _embedding_norm_layer=norm,
            _transformer_layers=blocks,
            _pooler_layer=pooler,
        )

    def functional_encoder(self, attributes=True):
        """Return an encoder like `BertEncoder`; without attributes as before August 2020."""
        layers = self.layers_with_weights()
        encoder = tree(**{f"layer_with_weights-{i}": layer for i, layer in enumerate(layers)})
        if attributes:
            word, position, kind, norm, *blocks, pooler = layers
            encoder._pooler_layer = pooler
            encoder._transformer_layers = blocks
            encoder._embedding_norm_layer = norm
            encoder._embedding_layer = word
            encoder._position_embedding_layer = position
            encoder._type_embedding_layer = kind
        return encoder

    def encoder_in_memory(self, activation, **config):
        """Return an encoder like `BertEncoderV2`, with a config and activations."""
        encoder = self.encoder()
        for block in encoder._transformer_layers:
            block._intermediate_activation_layer = tree(activation=activation)
        encoder.transformer_layers = encoder._transformer_layers
        encoder.built = True
        config = {
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "num_layers": self.layers,
            "num_attention_heads": self.heads,
            "max_sequence_length": self.positions,
            "type_vocab_size": self.types,
            "inner_dim": self.inner,
            "output_dropout": 0.3,
            "attention_dropout": 0.4,
            "initializer": {"class_name": "TruncatedNormal", "config": {"stddev": 0.5}},
            "norm_first": False,
            "output_range": None,
            "embedding_width": None,
            **config,
        }
        encoder.get_config = lambda: config
        return encoder

    def masked_lm(self, embeddings, scope="bert/"):
        self.scope = scope
        dense = self.dense(
            "cls/predictions/transform/dense", (self.hidden, self.hidden), (self.hidden,)
        )
        norm = self.norm("cls/predictions/transform/LayerNorm")
        bias = self.variable("cls/predictions/output_bias/bias", self.vocab)
        head = tree(embedding_table=embeddings, dense=dense, layer_norm=norm)
        setattr(head, "output_bias/bias", bias)
        head.bias = bias
        return head

    def classification_head(self, classes=2, pools=True, name="next_sentence"):
        self.scope = "bert/"
        head = tree()
        if pools:
            head.dense = self.dense(
                f"{name}/pooler_dense", (self.hidden, self.hidden), (self.hidden,)
            )
        head.out_proj = self.dense(f"{name}/logits", (self.hidden, classes), (classes,))
        return head

    def pretrainer(self, encoder, heads):
        embeddings = (
            encoder._embedding_layer
            if hasattr(encoder, "_embedding_layer")
            else getattr(encoder, "layer_with_weights-0")
        ).embeddings
        pretrainer = tree(_config=tree(encoder_network=encoder, classification_heads=[*heads]))
        pretrainer.encoder_network = encoder
        pretrainer.classification_heads = heads
        pretrainer.masked_lm = self.masked_lm(embeddings)
        return pretrainer


def items(pretrainer):
    """Return the items of the property `checkpoint_items`."""
    return {
        "encoder": pretrainer.encoder_network,
        "masked_lm": pretrainer.masked_lm,
        "next_sentence.pooler_dense": pretrainer.classification_heads[0].dense,
    }


def expected(encoder, masked_lm=None, head=None):
    """Return canonical name -> array."""
    if hasattr(encoder, "_embedding_layer"):
        layers = [
            encoder._embedding_layer,
            encoder._position_embedding_layer,
            encoder._type_embedding_layer,
            encoder._embedding_norm_layer,
            *encoder._transformer_layers,
            encoder._pooler_layer,
        ]
    else:
        layers = [
            getattr(encoder, f"layer_with_weights-{i}")
            for i in range(5 + SIZES["num_hidden_layers"])
        ]
    word, position, kind, norm, *blocks, pooler = layers
    if head is not None and hasattr(head, "dense"):
        pooler = head.dense
    modules = {
        "embeddings/word_embeddings": word,
        "embeddings/position_embeddings": position,
        "embeddings/token_type_embeddings": kind,
        "embeddings/layer_norm": norm,
        "pooler/dense": pooler,
    }
    found = {}
    if masked_lm is not None:
        modules["masked_lm/transform"] = masked_lm.dense
        modules["masked_lm/layer_norm"] = masked_lm.layer_norm
        found["masked_lm/output_bias"] = masked_lm.bias
    if head is not None:
        modules["next_sentence"] = head.out_proj
    for i, block in enumerate(blocks):
        attention = block._attention_layer
        by_hand = getattr(block, "_attention_output_dense", None)
        modules[f"layer_{i}/attention/output"] = by_hand or attention._output_dense
        for name in ("attention_layer_norm", "intermediate", "output", "output_layer_norm"):
            suffix = "" if name.endswith("norm") else "_dense"
            modules[f"layer_{i}/{name}"] = getattr(block, f"_{name}{suffix}")
        three = [attention._query_dense, attention._key_dense, attention._value_dense]
        hidden = word.embeddings.shape[1]
        kernels = [layer.kernel.numpy().reshape(hidden, hidden) for layer in three]
        found[f"layer_{i}/attention/qkv/kernel"] = np.concatenate(kernels, axis=1)
        biases = [layer.bias.numpy().reshape(hidden) for layer in three]
        found[f"layer_{i}/attention/qkv/bias"] = np.concatenate(biases)
    for name, module in modules.items():
        for variable in ("embeddings", "kernel", "bias", "gamma", "beta"):
            if hasattr(module, variable):
                found[f"{name}/{variable}"] = np.asarray(getattr(module, variable))
        if name.endswith("attention/output"):
            found[f"{name}/kernel"] = found[f"{name}/kernel"].reshape(hidden, hidden)
    return {name: np.asarray(array) for name, array in found.items()}


def assert_same(weights, wanted):
    assert weights.keys() == wanted.keys()
    for name, array in weights.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def write_config(path, **changes):
    path.mkdir(exist_ok=True)
    # Google's configs have no layer_norm_eps.
    config = {**SIZES, "hidden_act": "gelu", "hidden_dropout_prob": 0.2, **changes}
    (path / "bert_config.json").write_text(json.dumps(config))
    (path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")


def save_model(path, encoder, masked_lm=None, activation="gelu_new", variables=None, **attributes):
    """Write a SavedModel like `export_tfhub_lib`, with the ops of an activation.

    Args:
        path: The folder.
        encoder: An encoder, or `None` for a list of variables without attributes.
        masked_lm: A masked-LM head.
        activation: A key of `compute` below, or a list of keys.
        variables: Variables of the encoder, in order. Default: the encoder's variables.
        **attributes: Attributes of the root, such as `do_lower_case`.
    """
    compute = {
        "gelu": tf.math.erfc,
        "gelu of 2020": tf.math.erf,
        "gelu_new": lambda x: tf.tanh(x + 0.044715 * tf.pow(x, 3)),
        "relu": tf.nn.relu,
    }
    names = [activation] if isinstance(activation, str) else activation

    @tf.function(input_signature=[tf.TensorSpec([None])], autograph=False)
    def call(x):
        return tf.tanh(sum((compute[name](x) for name in names), x))  # tanh: pooler

    root = tf.__internal__.tracking.AutoTrackable()  # tf.Module.variables is read-only
    if encoder is not None:
        setattr(root, "layer_with_weights-0", encoder)
        variables = list(encoder.variables)
    root.variables = variables
    root.__call__ = call
    if masked_lm is not None:
        pretrainer = tree(encoder_network=encoder, masked_lm=masked_lm)
        root.mlm = tree(**{"layer_with_weights-0": pretrainer})
    vocabulary = path.parent / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY) + "\n")
    for name, value in {
        "vocab_file": tf.saved_model.Asset(str(vocabulary)),
        "do_lower_case": tf.Variable(True, trainable=False),
        **attributes,
    }.items():
        if value is not None:
            setattr(root, name, value)
    tf.saved_model.save(root, str(path))
    return path
