"""A model with a head as an ONNX graph, written from its weights.

The graph has standard ops of opset 12, which ONNX Runtime and OpenVINO read. ONNX Runtime fuses
attention only up to this opset, and only in this form: three matmuls, and a mask of -10000 after
two `Unsqueeze` (as of onnxruntime 1.32). It also fuses LayerNorm with the residual, and GELU with
its bias. Batch and length are dynamic.

Inputs and outputs have the names and types of Hugging Face's exports, so that its consumers read
the graph: `input_ids`, `attention_mask` and `token_type_ids`, int64 (batch_size, sequence_length).
The tasks add the heads (`Task.add_onnx_head`), with logits as outputs. An encoder has the outputs
`last_hidden_state` (batch_size, sequence_length, hidden) and `pooler_output`.

A row whose mask is all zeros gives other numbers than in Keras, and so does a masked [CLS] with the
pooling "cls".
"""

import keras
import numpy as np

from keras_bert import keras_private
from keras_bert.encoder import BertEncoder
from keras_bert.exporting import graph_folder
from keras_bert.layers import SentencePooling, UnitLength
from keras_bert.model_structure import (
    embedding_layers,
    find_encoder,
    find_output,
    has_choices,
)
from keras_bert.tasks import registry
from keras_bert.tasks.head_structure import is_built_by

OPSET = 12
_IR_VERSION = 7  # of ONNX 1.7, which introduced the opset
_FLOAT, _INT64 = 1, 7  # of `onnx.TensorProto`
BATCH, LENGTH = "batch_size", "sequence_length"  # names of axes
_MAX_BYTES = 2**31 - 2**20  # of a file


def build_model_proto(model):
    """Return the `onnx.ModelProto` of a model of `keras_bert.heads`, or of an encoder.

    Raises:
        ValueError: If the model has other layers, is quantized, has an activation that this
            module does not know, or is larger than 2 GB.
    """
    from onnx import helper

    _check(model)
    graph = Graph()
    outputs = _outputs(graph, model)
    shape = (BATCH, "num_choices", LENGTH) if has_choices(model) else (BATCH, LENGTH)
    value = helper.make_tensor_value_info
    inputs = [value(name, _INT64, shape) for name in graph_folder.INPUTS.values()]
    output_values = [value(name, _FLOAT, shape) for name, shape in outputs.items()]
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes, model.name, inputs, output_values, graph.weights, value_info=graph.shapes
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="keras_bert",
        ir_version=_IR_VERSION,
    )
    if proto.ByteSize() > _MAX_BYTES:
        raise ValueError(
            f"{model.name!r} is larger than 2 GB, the limit of an ONNX file. Export a SavedModel"
        )
    return proto


def _check(model):
    """Raise an error unless the model is an encoder or as `keras_bert.heads` builds it."""
    task = registry.find(model)
    is_plain = isinstance(model, BertEncoder) if task is None else is_built_by(task, model)
    if not is_plain:
        raise ValueError(
            f"an ONNX export needs an encoder or an unchanged model of keras_bert.heads; received "
            f"{model.name!r}. Export a SavedModel instead"
        )
    for layer in keras_private.all_layers(model):
        if getattr(layer, "quantization_mode", None):
            raise ValueError(
                f"an ONNX export needs weights that are not quantized; {layer.name!r} is. "
                'Export the original model with quantize="int8"'
            )


class Graph:
    """Nodes and weights. Methods that add a node return the name of its output."""

    def __init__(self):
        self.nodes = []
        self.weights = []
        self.shapes = []
        self._constants = {}
        self._variables = {}

    def node(self, op, *inputs, output=None, **attributes):
        from onnx import helper

        output = output or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def set_shape(self, name, *shape):
        """State the shape of a tensor, which ONNX Runtime must know to fuse ops."""
        from onnx import TensorProto, helper

        self.shapes.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def weight(self, value):
        """Add a weight: a Keras variable, which is added once, or an array."""
        from onnx import numpy_helper

        key = id(value) if isinstance(value, keras.Variable) else None
        if key in self._variables:
            return self._variables[key]
        name = f"weight_{len(self.weights)}"
        if key is not None:
            self._variables[key] = name
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(value), np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def constant(self, value, dtype=np.float32):
        """Add a small constant, once."""
        from onnx import numpy_helper

        array = np.array(value, dtype)
        key = (array.tobytes(), array.shape, array.dtype)
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self.weights.append(numpy_helper.from_array(array, name))
            self._constants[key] = name
        return self._constants[key]

    def integers(self, *values):
        return self.constant(values, np.int64)

    def dense(self, x, kernel, bias):
        """Add a matrix product, and a bias unless it is `None`."""
        x = self.node("MatMul", x, self.weight(kernel))
        return x if bias is None else self.node("Add", x, self.weight(bias))

    def dense_layer(self, x, layer):
        """Add a `keras.layers.Dense` without its activation."""
        return self.dense(x, layer.kernel, layer.bias)

    def layer(self, x, layer):
        """Add a layer after the pooling of an embedder."""
        if isinstance(layer, (UnitLength, keras.layers.UnitNormalization)):
            return self.unit_length(x)
        if isinstance(layer, keras.layers.LayerNormalization):
            return self.layer_norm(x, layer)
        x = self.dense_layer(x, layer)
        name = keras.activations.serialize(layer.activation)
        return x if name == "linear" else self.activation(x, name)

    def unit_length(self, x):
        """Scale vectors to length 1."""
        square = self.node("ReduceSum", self.node("Mul", x, x), axes=[-1])
        length = self.node("Sqrt", self.node("Max", square, self.constant(1e-24)))
        return self.node("Div", x, length)

    def masked_lm(self, model, encoded):
        """Add a `MaskedLMHead` for every token; return the logits (batch, seq, vocab)."""
        layer = model.get_layer("masked_lm")
        x = self.dense_layer(encoded.sequence, layer.transform)
        x = self.activation(x, layer.hidden_act)
        x = self.layer_norm(x, layer.layer_norm)
        if layer.tied:
            matrix = find_encoder(model).get_layer("embeddings").word_embeddings.embeddings
        else:
            matrix = layer.output_embeddings
        table = self.node("Transpose", self.weight(matrix), perm=(1, 0))
        return self.node("Add", self.node("MatMul", x, table), self.weight(layer.output_bias))

    def layer_norm(self, x, layer):
        """Add a LayerNorm as the ops that ONNX Runtime fuses. Its fusion of attention needs it."""
        centered = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        square = self.node("Pow", centered, self.constant(2.0))
        variance = self.node("ReduceMean", square, axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", variance, self.constant(layer.epsilon)))
        x = self.node("Mul", self.node("Div", centered, deviation), self.weight(layer.gamma))
        return self.node("Add", x, self.weight(layer.beta))

    def activation(self, x, name):
        if name == "gelu":
            erf = self.node("Erf", self.node("Div", x, self.constant(2**0.5)))
            scaled = self.node("Mul", x, self.node("Add", erf, self.constant(1.0)))
            return self.node("Mul", scaled, self.constant(0.5))
        if name in ("gelu_new", "gelu_pytorch_tanh"):
            cubed = self.node("Pow", x, self.constant(3.0))
            cubed = self.node("Mul", cubed, self.constant(0.044715))
            inner = self.node("Mul", self.node("Add", x, cubed), self.constant((2 / np.pi) ** 0.5))
            tanh = self.node("Add", self.node("Tanh", inner), self.constant(1.0))
            return self.node("Mul", self.node("Mul", x, self.constant(0.5)), tanh)
        if name in ("relu", "tanh", "sigmoid"):
            return self.node(name.capitalize(), x)
        if name in ("silu", "swish"):
            return self.node("Mul", x, self.node("Sigmoid", x))
        raise ValueError(
            f"an ONNX export needs an activation gelu, gelu_new, relu, tanh, sigmoid or silu; "
            f"received {name!r}"
        )


class EncodedInputs:
    """The outputs of the encoder in a graph, for the head.

    Attributes:
        output: The `layers.TaskOutput` of the model.
        words: Name of the input with the token ids.
        sequence: Name of the sequence output (rows, seq, hidden).
        hidden_size: Size of the vectors.
        vocab_size: Size of the vocabulary.
    """

    def __init__(self, graph, model):
        self._graph = graph
        self._model = model
        self._encoder = find_encoder(model)
        inputs = dict(graph_folder.INPUTS)
        self.output = find_output(model)
        self.words = inputs["input_word_ids"]
        self.hidden_size = self._encoder.bert_config["hidden_size"]
        self.vocab_size = self._encoder.bert_config["vocab_size"]
        rows = BATCH
        if has_choices(model):
            rows = "batch_choices"
            # With `Reshape`, the rank of the mask is unknown and ONNX Runtime does not fuse
            # attention.
            inputs = {key: graph.node("Flatten", name, axis=2) for key, name in inputs.items()}
        self._mask = inputs["input_mask"]
        self._visible = None
        self.sequence = _encode(graph, self._encoder, inputs, rows)

    def pooled(self):
        """Add the pooler; return the name of its output (rows, hidden)."""
        cls = self._graph.node("Gather", self.sequence, self._graph.constant(0, np.int64), axis=1)
        pooler = self._encoder.get_layer("pooler")
        return self._graph.activation(self._graph.dense_layer(cls, pooler.dense), pooler.activation)

    def text_vector(self):
        """Add the pooling of the head, or the pooler; return the name of the vectors."""
        graph = self._graph
        layer = next(
            (item for item in self._model.layers if isinstance(item, SentencePooling)), None
        )
        if layer is None:
            return self.pooled()
        modes = layer.mode if isinstance(layer.mode, tuple) else (layer.mode,)
        pooled = [self.pool(mode, self.sequence) for mode in modes]
        x = pooled[0] if len(pooled) == 1 else graph.node("Concat", *pooled, axis=1)
        return graph.unit_length(x) if layer.normalize else x

    def pool(self, mode, x):
        """Add a mode of a `SentencePooling` for the tokens of `x`, (rows, seq, width)."""
        if self._visible is None:
            mask = self._graph.node("Cast", self._mask, to=_FLOAT)
            self._visible = self._graph.node("Unsqueeze", mask, axes=[2])
        return _pool_by(self._graph, mode, x, self._visible)


def _outputs(graph, model):
    """Add the nodes of a model; return {output: shape}."""
    encoded = EncodedInputs(graph, model)
    task = registry.find(model)
    if task is not None:
        return task.add_onnx_head(graph, model, encoded)
    hidden = model.bert_config["hidden_size"]
    graph.node("Identity", encoded.sequence, output="last_hidden_state")
    graph.node("Identity", encoded.pooled(), output="pooler_output")
    return {"last_hidden_state": (BATCH, LENGTH, hidden), "pooler_output": (BATCH, hidden)}


def _encode(graph, encoder, inputs, rows):
    """Add the encoder; return the name of the sequence output (rows, seq, hidden).

    `rows` is the name of the first axis: `batch_size`, or `batch_choices` of flattened choices.
    """
    embeddings = encoder.get_layer("embeddings")
    word_table, position_table, type_table = (
        graph.weight(layer.embeddings) for layer in embedding_layers(encoder)
    )
    shape = graph.node("Shape", inputs["input_word_ids"])
    seq = graph.node("Gather", shape, graph.integers(1))
    words = graph.node("Gather", word_table, inputs["input_word_ids"])
    types = graph.node("Gather", type_table, inputs["input_type_ids"])
    positions = graph.node("Slice", position_table, graph.integers(0), seq, graph.integers(0))
    x = graph.node("Add", words, types)
    x = graph.node("Add", x, positions)
    x = graph.set_shape(x, rows, LENGTH, embeddings.word_embeddings.output_dim)
    x = graph.layer_norm(x, embeddings.layer_norm)
    if embeddings.projection is not None:
        x = graph.dense_layer(x, embeddings.projection)
    mask = graph.node("Unsqueeze", inputs["input_mask"], axes=[1])
    mask = graph.node("Unsqueeze", mask, axes=[2])  # (rows, 1, 1, seq)
    mask = graph.node("Cast", mask, to=_FLOAT)
    is_padding = graph.node("Sub", graph.constant(1.0), mask)
    bias = graph.node("Mul", is_padding, graph.constant(-10000.0))
    for index in range(encoder.bert_config["num_hidden_layers"]):
        x = _block(graph, encoder.get_layer(f"layer_{index}"), x, bias)
    return x


def _block(graph, layer, x, bias):
    """Add a `TransformerBlock`. `bias` is added to the logits of the attention."""
    attention = layer.attention
    heads = attention.num_heads
    size = attention.head_size
    kernels = np.split(keras.ops.convert_to_numpy(attention.qkv.kernel), 3, axis=1)
    biases = np.split(keras.ops.convert_to_numpy(attention.qkv.bias), 3)
    query, key, value = (
        graph.node("Reshape", graph.dense(x, kernel, bias), graph.integers(0, 0, heads, size))
        for kernel, bias in zip(kernels, biases, strict=True)
    )
    query = graph.node("Transpose", query, perm=(0, 2, 1, 3))  # (batch, heads, seq, head)
    key = graph.node("Transpose", key, perm=(0, 2, 3, 1))
    value = graph.node("Transpose", value, perm=(0, 2, 1, 3))
    logits = graph.node("Div", graph.node("MatMul", query, key), graph.constant(size**0.5))
    probabilities = graph.node("Softmax", graph.node("Add", logits, bias), axis=3)
    context = graph.node("Transpose", graph.node("MatMul", probabilities, value), perm=(0, 2, 1, 3))
    context = graph.node("Reshape", context, graph.integers(0, 0, heads * size))
    y = graph.dense_layer(context, attention.output_dense)
    x = graph.layer_norm(graph.node("Add", y, x), layer.attention_layer_norm)
    y = graph.activation(graph.dense_layer(x, layer.intermediate), layer.hidden_act)
    y = graph.dense_layer(y, layer.output_dense)
    return graph.layer_norm(graph.node("Add", y, x), layer.output_layer_norm)


def _pool_by(graph, mode, sequence, visible):
    """Add one mode of a `SentencePooling`; `visible` is 1 at tokens, float (batch, seq, 1)."""
    if mode == "cls":
        return graph.node("Gather", sequence, graph.constant(0, np.int64), axis=1)
    if mode == "max":
        bias = graph.node("Sub", graph.constant(1.0), visible)
        bias = graph.node("Mul", bias, graph.constant(-1e30))
        masked = graph.node("Add", graph.node("Mul", sequence, visible), bias)
        return graph.node("ReduceMax", masked, axes=[1], keepdims=0)
    weights = visible
    if mode in ("weightedmean", "lasttoken"):
        zeros = graph.node("Mul", visible, graph.constant(0.0))
        ones = graph.node("Add", zeros, graph.constant(1.0))
        position = graph.node("CumSum", ones, graph.constant(1, np.int64))
        weights = graph.node("Mul", position, visible)
    if mode == "lasttoken":
        last = graph.node("ReduceMax", weights, axes=[1], keepdims=1)
        weights = graph.node("Cast", graph.node("Equal", weights, last), to=_FLOAT)
        weights = graph.node("Mul", weights, visible)
    total = graph.node("ReduceSum", graph.node("Mul", sequence, weights), axes=[1], keepdims=0)
    count = graph.node("ReduceSum", weights, axes=[1], keepdims=0)
    if mode == "mean_sqrt_len_tokens":
        count = graph.node("Sqrt", count)
    return graph.node("Div", total, graph.node("Max", count, graph.constant(1.0)))
