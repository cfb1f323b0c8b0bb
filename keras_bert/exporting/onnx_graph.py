"""A model with a head as an ONNX graph, written from its weights.

The graph has standard ops of opset 12, which ONNX Runtime and OpenVINO read. ONNX Runtime fuses
attention only up to this opset, and only in this form: three matmuls, and a mask of -10000 after
two `Unsqueeze` (as of onnxruntime 1.32). It also fuses LayerNorm with the residual, and GELU with
its bias. Batch and length are dynamic.

Inputs are those of the model, int32 (batch, seq); of multiple_choice (batch, choices, seq).
Outputs, float32:

    classifier, next_sentence, multiple_choice  probabilities (batch, labels or choices)
    regressor                                   score (batch,)
    embedder                                    embedding (batch, hidden)
    tagger                                      probabilities (batch, seq, tags)
    span_selector                               start_logits, end_logits (batch, seq)
    masked_lm                                   logits (batch, predictions, vocab)
    pretraining                                 masked_lm (batch, predictions, vocab), next_sentence
                                                (batch, 2): logits
    an encoder                                  sequence_output (batch, seq, hidden), pooled_output

A row whose mask is all zeros gives other numbers than in Keras, and so does a masked [CLS] with the
pooling "cls".
"""

import keras
import numpy as np

from keras_bert import heads, keras_private
from keras_bert.encoder import INPUTS, BertEncoder
from keras_bert.layers import SentencePooling, UnitLength
from keras_bert.model_structure import embedding_layers, find_encoder, find_output, find_task

OPSET = 12
_IR_VERSION = 7  # of ONNX 1.7, which introduced the opset
_FLOAT, _INT64 = 1, 7  # of `onnx.TensorProto`
_MAX_BYTES = 2**31 - 2**20  # of a file


def build_model_proto(model):
    """Return the `onnx.ModelProto` of a model of `keras_bert.heads`, or of an encoder.

    Raises:
        ValueError: If the model has other layers, is quantized, has an activation that this
            module does not know, or is larger than 2 GB.
    """
    import onnx
    from onnx import helper

    _check(model)
    graph = _Graph()
    names = list(model.input)
    outputs = _outputs(graph, model, names)
    rank = len(model.input[names[0]].shape)
    axes = ("batch", "choices", "seq") if rank == 3 else ("batch", "seq")
    inputs = [
        helper.make_tensor_value_info(
            name,
            onnx.TensorProto.INT32,
            ("batch", "predictions") if name == "masked_lm_positions" else axes,
        )
        for name in names
    ]
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            model.name,
            inputs,
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                for name, shape in outputs.items()
            ],
            graph.weights,
            value_info=graph.shapes,
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
    if not isinstance(model, BertEncoder) and not _is_unchanged_head(model):
        name = getattr(model, "name", model)
        raise ValueError(
            f"an ONNX export needs an encoder or an unchanged model of keras_bert.heads; received "
            f"{name!r}. Export a SavedModel instead"
        )
    for layer in keras_private.all_layers(model):
        if getattr(layer, "quantization_mode", None):
            raise ValueError(
                f"an ONNX export needs weights that are not quantized; {layer.name!r} is. "
                'Export the original model with quantize="int8"'
            )


_EMBEDDER_LAYERS = (keras.layers.Dense, keras.layers.UnitNormalization, UnitLength)


def _is_unchanged_head(model):
    """Compare the calls of a model with those of a new head for its task."""
    output = find_output(model) if isinstance(model, keras.Model) else None
    if output is None or (task := find_task(model)) not in heads.TASKS:
        return False
    options = {}
    if output.labels and task != "next_sentence":
        options["labels"] = output.labels
    pooling = next((each for each in model.layers if isinstance(each, SentencePooling)), None)
    if task in ("classification", "regression"):
        options["pooling"] = "pooler" if pooling is None else pooling.mode
    elif task == "embedding":
        if pooling is None:
            return False
        layers = _layers_after(model, pooling)
        if not all(type(layer) in _EMBEDDER_LAYERS for layer in layers):
            return False
        options |= {
            "pooling": pooling.mode,
            "normalize": pooling.normalize,
            "layers": [type(layer).from_config(layer.get_config()) for layer in layers],
        }
        if layers:  # a final normalization is one of the layers
            options["normalize"] = False
            if pooling.normalize:
                return False
    if task == "classification" and output.multi_label:
        options["multi_label"] = True
    fresh = heads.TASKS[task](find_encoder(model), **options)
    return _calls(model) == _calls(fresh)


def _layers_after(model, pooling):
    """Return the layers between the pooling and the output of an embedder."""
    return model.layers[model.layers.index(pooling) + 1 : -1]


def _calls(model):
    """Return the calls of a model in a form that can be compared."""
    calls = []
    for operation, inputs in keras_private.graph_calls(model):
        sources = tuple((*_kind(source), index) for source, index in inputs)
        calls.append((*_kind(operation), sources))
    return sorted(calls)


def _kind(operation):
    """Return the class of an operation, and what else its computation depends on."""
    details = ""
    if isinstance(operation, keras.layers.InputLayer):
        details = operation.name
    elif isinstance(operation, keras.layers.Dense):
        is_linear = operation.activation is keras.activations.linear
        details = f"{operation.name} {operation.units} {is_linear} {operation.use_bias}"
    elif isinstance(operation, SentencePooling):
        details = f"{operation.mode} {operation.normalize}"
    return type(operation).__name__, details


class _Graph:
    """Nodes and weights. Methods that add a node return the name of its output."""

    def __init__(self):
        self.nodes, self.weights, self.shapes = [], [], []
        self._constants, self._variables = {}, {}

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
        return self.node("Add", self.node("MatMul", x, self.weight(kernel)), self.weight(bias))

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
            cubed = self.node(
                "Mul", self.node("Pow", x, self.constant(3.0)), self.constant(0.044715)
            )
            inner = self.node("Mul", self.node("Add", x, cubed), self.constant((2 / np.pi) ** 0.5))
            tanh = self.node("Add", self.node("Tanh", inner), self.constant(1.0))
            return self.node("Mul", self.node("Mul", x, self.constant(0.5)), tanh)
        if name in ("relu", "tanh", "sigmoid"):
            return self.node(name.capitalize(), x)
        if name in ("silu", "swish"):
            return self.node("Mul", x, self.node("Sigmoid", x))
        raise ValueError(
            f"an ONNX export needs hidden_act gelu, gelu_new, relu, tanh, sigmoid or silu; "
            f"received {name!r}"
        )


def _outputs(graph, model, names):
    """Add the nodes of a model; return {output: shape}."""
    encoder = find_encoder(model)
    inputs = dict(zip(INPUTS, names, strict=False))
    task = find_task(model)
    if task == "multiple_choice":
        # With `Reshape`, the rank of the mask is unknown and ONNX Runtime does not fuse attention.
        inputs = {key: graph.node("Flatten", name, axis=2) for key, name in inputs.items()}
    rows = "batch_choices" if task == "multiple_choice" else "batch"
    sequence = _encode(graph, encoder, inputs, rows)
    outputs: dict[str, tuple]
    hidden = encoder.bert_config["hidden_size"]
    if model is encoder:
        graph.node("Identity", sequence, output="sequence_output")
        graph.node("Identity", _pooled(graph, encoder, sequence), output="pooled_output")
        return {
            "sequence_output": ("batch", "seq", hidden),
            "pooled_output": ("batch", hidden),
        }
    if task in ("masked_tokens", "pretraining"):
        logits = _masked_lm(graph, model, sequence, names[-1])
        name = "logits" if task == "masked_tokens" else "masked_lm"
        graph.node("Identity", logits, output=name)
        outputs = {name: ("batch", "predictions", encoder.bert_config["vocab_size"])}
        if task == "pretraining":
            dense = model.get_layer("next_sentence")
            x = graph.dense(_pooled(graph, encoder, sequence), dense.kernel, dense.bias)
            graph.node("Identity", x, output="next_sentence")
            outputs["next_sentence"] = ("batch", 2)
        return outputs
    return _head(graph, model, encoder, task, sequence, inputs["input_mask"], names)


def _head(graph, model, encoder, task, sequence, mask, names):
    """Add a head of fine-tuning."""
    output = find_output(model)
    if task in ("tagging", "question_answering"):
        x = sequence
    else:
        pooling = next((each for each in model.layers if isinstance(each, SentencePooling)), None)
        if pooling is None:
            x = _pooled(graph, encoder, sequence)
        else:
            x = _pool(graph, pooling, sequence, mask)
    if task == "embedding":
        for layer in _layers_after(model, pooling):
            if isinstance(layer, (UnitLength, keras.layers.UnitNormalization)):
                x = _unit_length(graph, x)
                continue
            x = graph.dense(x, layer.kernel, layer.bias)
            activation = keras.activations.serialize(layer.activation)
            x = x if activation == "linear" else graph.activation(x, activation)
        graph.node("Identity", x, output="embedding")
        return {"embedding": ("batch", model.output_shape[-1])}
    dense = model.get_layer("next_sentence" if task == "next_sentence" else "logits")
    x = graph.dense(x, dense.kernel, dense.bias)
    if task == "regression":
        if output.activation not in (None, "linear"):
            x = graph.activation(x, output.activation)
        graph.node("Squeeze", x, axes=[-1], output="score")
        return {"score": ("batch",)}
    if task == "question_answering":
        for index, name in enumerate(("start_logits", "end_logits")):
            graph.node("Gather", x, graph.constant(index, np.int64), axis=-1, output=name)
        return dict.fromkeys(("start_logits", "end_logits"), ("batch", "seq"))
    if task == "multiple_choice":
        shape = graph.node("Gather", graph.node("Shape", names[0]), graph.integers(0, 1))
        x = graph.node("Reshape", x, shape)
        graph.node("Softmax", x, axis=-1, output="probabilities")
        return {"probabilities": ("batch", "choices")}
    if output.multi_label:
        graph.node("Sigmoid", x, output="probabilities")
    else:
        graph.node("Softmax", x, axis=-1, output="probabilities")
    axes = ("batch", "seq") if task == "tagging" else ("batch",)
    return {"probabilities": (*axes, len(output.labels))}


def _encode(graph, encoder, inputs, rows):
    """Add the encoder; return the name of the sequence output (rows, seq, hidden).

    `rows` is the name of the first axis, which must differ from "batch" if their sizes differ.
    """
    embeddings = encoder.get_layer("embeddings")
    words, positions, types = (
        graph.weight(layer.embeddings) for layer in embedding_layers(encoder)
    )
    shape = graph.node("Shape", inputs["input_word_ids"])
    seq = graph.node("Gather", shape, graph.integers(1))
    positions = graph.node("Slice", positions, graph.integers(0), seq, graph.integers(0))
    x = graph.node("Gather", words, inputs["input_word_ids"])
    x = graph.node("Add", x, graph.node("Gather", types, inputs["input_type_ids"]))
    x = graph.set_shape(graph.node("Add", x, positions), rows, "seq", embeddings.hidden_size)
    x = graph.layer_norm(x, embeddings.layer_norm)
    mask = graph.node("Unsqueeze", inputs["input_mask"], axes=[1])
    mask = graph.node("Unsqueeze", mask, axes=[2])
    mask = graph.node("Sub", graph.constant(1.0), graph.node("Cast", mask, to=_FLOAT))
    mask = graph.node("Mul", mask, graph.constant(-10000.0))  # (rows, 1, 1, seq)
    for index in range(encoder.bert_config["num_hidden_layers"]):
        x = _block(graph, encoder.get_layer(f"layer_{index}"), x, mask)
    return x


def _block(graph, layer, x, mask):
    """Add a `TransformerBlock`."""
    attention = layer.attention
    heads, size = attention.num_heads, attention.head_size
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
    probabilities = graph.node("Softmax", graph.node("Add", logits, mask), axis=3)
    context = graph.node("Transpose", graph.node("MatMul", probabilities, value), perm=(0, 2, 1, 3))
    context = graph.node("Reshape", context, graph.integers(0, 0, heads * size))
    y = graph.dense(context, attention.output_dense.kernel, attention.output_dense.bias)
    x = graph.layer_norm(graph.node("Add", y, x), layer.attention_layer_norm)
    y = graph.dense(x, layer.intermediate.kernel, layer.intermediate.bias)
    y = graph.activation(y, layer.hidden_act)
    y = graph.dense(y, layer.output_dense.kernel, layer.output_dense.bias)
    return graph.layer_norm(graph.node("Add", y, x), layer.output_layer_norm)


def _pooled(graph, encoder, sequence):
    """Add BERT's pooler."""
    dense = encoder.get_layer("pooler").dense
    cls = graph.node("Gather", sequence, graph.constant(0, np.int64), axis=1)
    return graph.node("Tanh", graph.dense(cls, dense.kernel, dense.bias))


def _pool(graph, layer, sequence, mask):
    """Add a `SentencePooling`."""
    visible = graph.node("Unsqueeze", graph.node("Cast", mask, to=_FLOAT), axes=[2])
    modes = layer.mode if isinstance(layer.mode, tuple) else (layer.mode,)
    pooled = [_pool_by(graph, mode, sequence, visible) for mode in modes]
    x = pooled[0] if len(pooled) == 1 else graph.node("Concat", *pooled, axis=1)
    return _unit_length(graph, x) if layer.normalize else x


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
        ones = graph.node(
            "Add", graph.node("Mul", visible, graph.constant(0.0)), graph.constant(1.0)
        )
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


def _unit_length(graph, x):
    """Scale vectors to length 1."""
    square = graph.node("ReduceSum", graph.node("Mul", x, x), axes=[-1])
    length = graph.node("Sqrt", graph.node("Max", square, graph.constant(1e-24)))
    return graph.node("Div", x, length)


def _masked_lm(graph, model, sequence, positions):
    """Add a `MaskedLMHead`; return the logits (batch, predictions, vocab)."""
    layer = model.get_layer("masked_lm")
    indices = graph.node("Unsqueeze", graph.node("Cast", positions, to=_INT64), axes=[2])
    x = graph.node("GatherND", sequence, indices, batch_dims=1)
    x = graph.activation(
        graph.dense(x, layer.transform.kernel, layer.transform.bias), layer.hidden_act
    )
    x = graph.layer_norm(x, layer.layer_norm)
    if layer.tied:
        matrix = find_encoder(model).get_layer("embeddings").word_embeddings.embeddings
    else:
        matrix = layer.output_embeddings
    table = graph.node("Transpose", graph.weight(matrix), perm=(1, 0))
    return graph.node("Add", graph.node("MatMul", x, table), graph.weight(layer.output_bias))
