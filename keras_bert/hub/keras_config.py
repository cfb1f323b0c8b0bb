"""Build the model of an untrusted `.keras` config.

Keras creates every object that a config names, imports modules to find it, and resolves strings to
registered classes. So Keras does not read the config of an untrusted file. This module knows the
layers that heads are made of and their arguments, and calls the constructors itself.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import keras

from keras_bert import layers
from keras_bert.checkpoints.canonical import KERAS_ACTIVATIONS
from keras_bert.encoder import BertEncoder
from keras_bert.runtime import budget
from keras_bert.runtime.escaping import printable, shown
from keras_bert.runtime.words import words
from keras_bert.text.preprocessor import Preprocessor
from keras_bert.token_model import TokenModel

_Constructors = dict[str, tuple[Callable[..., Any], frozenset[str]]]

_OWN_PACKAGE = "keras_bert"
_FUNCTIONAL = ("Functional", "Model")
_OF_FUNCTIONAL = words("name trainable layers input_layers output_layers")
_INPUT = "InputLayer"
_OF_INPUT = words("batch_shape dtype name")


def _table(*rows: tuple[Any, str]) -> _Constructors:
    """Return {class name: (constructor, names of the arguments that a config may have)}."""
    return {kind.__name__: (kind, words(names)) for kind, names in rows}


def _by_config(kind: Any) -> Callable[..., Any]:
    """Return a constructor for a class whose config has more than the constructor's arguments."""
    return lambda **arguments: kind.from_config(arguments)


_OF_EACH_LAYER = "name trainable dtype"
_OF_MASKED_LM = (
    f"{_OF_EACH_LAYER} vocab_size hidden_act layer_norm_eps initializer_range tied embedding_size"
)
_OWN_LAYERS = _table(
    (
        BertEncoder,
        f"""
        {_OF_EACH_LAYER} vocab_size hidden_size num_hidden_layers num_attention_heads
        intermediate_size hidden_act hidden_dropout_prob attention_probs_dropout_prob
        max_position_embeddings type_vocab_size initializer_range layer_norm_eps embedding_size
        pooler_act rematerialize preprocessor pooling lora frozen fresh_pooler
        """,
    ),
    (
        Preprocessor,
        f"""
        {_OF_EACH_LAYER} sequence_length max_sequence_length lowercase strip_accents split_cjk
        added_tokens
        """,
    ),
    (
        layers.TaskOutput,
        f"""
        {_OF_EACH_LAYER} task labels pairs multi_label no_answer names characters long_texts prompts
        default_prompt similarity label_type activation target_mean target_scale
        """,
    ),
    # The layers of an encoder are those of a model on `encoder.output`.
    (
        layers.Embeddings,
        f"""
        {_OF_EACH_LAYER} vocab_size hidden_size max_position_embeddings type_vocab_size dropout
        layer_norm_eps initializer_range embedding_size
        """,
    ),
    (
        layers.TransformerBlock,
        f"""
        {_OF_EACH_LAYER} num_heads intermediate_size hidden_act dropout attention_dropout
        layer_norm_eps initializer_range rematerialize
        """,
    ),
    (layers.Pooler, f"{_OF_EACH_LAYER} initializer_range activation"),
    (layers.Dropout, f"{_OF_EACH_LAYER} rate seed noise_shape"),
    (layers.GatherTexts, _OF_EACH_LAYER),
    (layers.MaskedLMHead, _OF_MASKED_LM),
    (layers.MergeChoices, _OF_EACH_LAYER),
    (layers.SentencePooling, f"{_OF_EACH_LAYER} mode normalize"),
    (layers.SpladeHead, _OF_MASKED_LM),
    (layers.SplitChoices, f"{_OF_EACH_LAYER} keep_width"),
    (layers.UnitLength, _OF_EACH_LAYER),
    (layers.WeightedSum, _OF_EACH_LAYER),
    (layers.WithoutDropout, f"{_OF_EACH_LAYER} layer"),
)
for _kind in (BertEncoder, Preprocessor):
    _OWN_LAYERS[_kind.__name__] = (_by_config(_kind), _OWN_LAYERS[_kind.__name__][1])
_KERAS_LAYERS = _table(
    (keras.layers.Add, _OF_EACH_LAYER),
    (keras.layers.Average, _OF_EACH_LAYER),
    (keras.layers.Concatenate, f"{_OF_EACH_LAYER} axis"),
    (
        keras.layers.Dense,
        f"{_OF_EACH_LAYER} units activation use_bias lora_rank lora_alpha quantization_config",
    ),
    (keras.layers.Dropout, f"{_OF_EACH_LAYER} rate seed noise_shape"),
    (keras.layers.LayerNormalization, f"{_OF_EACH_LAYER} axis epsilon center scale"),
    (keras.layers.UnitNormalization, f"{_OF_EACH_LAYER} axis"),
)
# Arguments that are objects of Keras -> the classes that they may have.
_POLICIES = _table(
    (keras.dtype_policies.DTypePolicyMap, "default_policy policy_map"),
    (keras.dtype_policies.QuantizedDTypePolicy, "mode source_name"),
    (keras.dtype_policies.QuantizedFloat8DTypePolicy, "mode source_name amax_history_length"),
    (keras.dtype_policies.Int4DTypePolicy, "mode source_name"),
)
# Keras gives layers the name of a plain policy, too, and can then write their configs.
_POLICIES["DTypePolicy"] = (lambda name: name, words("name"))
_QUANTIZERS = _table((keras.quantizers.AbsMaxQuantizer, "axis value_range epsilon output_dtype"))
_OBJECTS = {
    "dtype": _POLICIES,
    "default_policy": _POLICIES,
    "quantization_config": _table(
        (keras.quantizers.Int8QuantizationConfig, "weight_quantizer activation_quantizer"),
        (
            keras.quantizers.Int4QuantizationConfig,
            "weight_quantizer activation_quantizer block_size",
        ),
        (keras.quantizers.Float8QuantizationConfig, ""),
    ),
    "weight_quantizer": _QUANTIZERS,
    "activation_quantizer": _QUANTIZERS,
}
_LAYERS = ("layer", "preprocessor")
# The weights of the file replace the initial ones.
_IGNORED = words("kernel_initializer bias_initializer beta_initializer gamma_initializer")
# Arguments that may be lists or dicts of numbers and strings.
_COLLECTIONS = words(
    "added_tokens axis frozen labels lora mode names noise_shape prompts value_range"
)
_LONG_COLLECTIONS = words("added_tokens labels")
_ACTIVATIONS = KERAS_ACTIVATIONS | words("gelu gelu_new gelu_pytorch_tanh leaky_relu")
_DTYPE = re.compile(r"[a-z0-9_/-]{1,40}")
# Arguments that are strings which Keras resolves -> a function that is true for a known one.
_STRINGS: dict[str, Callable[[str], Any]] = {
    "activation": _ACTIVATIONS.__contains__,
    "hidden_act": _ACTIVATIONS.__contains__,
    "pooler_act": _ACTIVATIONS.__contains__,
    "dtype": _DTYPE.fullmatch,
    "default_policy": _DTYPE.fullmatch,
}
_PATH = re.compile(r"[\w/-]{1,500}")  # of a layer; Keras reads it as a regular expression
_LAYERS_PER_HIDDEN_LAYER = 3  # which take the same time


class Refused(ValueError):
    """The config has an object or a value that an untrusted model must not have."""


def build(config: dict[str, Any], max_hidden_layers: int) -> keras.Model:
    """Return the model of a config, without the weights of its file.

    Args:
        config: The parsed `config.json` of a `.keras` file.
        max_hidden_layers: The most hidden layers that the encoders may have together.

    Raises:
        Refused: If the config has anything but the layers and arguments of this module.
        ValueError: If a layer cannot have one of these arguments.
    """
    model = _Builder(max_hidden_layers).layer(config)
    if not isinstance(model, keras.Model):
        raise Refused(f"it contains {_name_of(config)} in place of a model")
    return model


class _Builder:
    """Builds layers, and counts them and their inputs."""

    def __init__(self, max_hidden_layers: int) -> None:
        self._hidden_layers_left = max_hidden_layers
        self._layers_left = _LAYERS_PER_HIDDEN_LAYER * budget.MAX_LAYERS
        self._tensors_left = budget.MAX_OBJECTS
        self._paths: set[str] = set()  # in all maps of policies
        # `shared_object_id` -> layer, and the number of layers that it took from `_layers_left`
        self._shared: dict[int, tuple[Any, int]] = {}

    def layer(self, item: Any) -> Any:
        """Return a layer or a model; for an input, its tensor."""
        shared_id = _expect(item, dict, "an object").get("shared_object_id")
        if shared_id is None:
            return self._new_layer(item)
        if _expect(shared_id, int, "a shared_object_id") in self._shared:
            layer, count = self._shared[shared_id]
            self._spend(count)  # the layer is called once more
            return layer
        before = self._layers_left
        layer = self._new_layer(item)
        self._shared[shared_id] = layer, before - self._layers_left
        return layer

    def _new_layer(self, item: Any) -> Any:
        config = _config_of(item)
        class_name = item["class_name"]
        is_own = item.get("registered_name") == f"{_OWN_PACKAGE}>{class_name}"
        self._count(class_name, config)
        if class_name == TokenModel.__name__ and is_own:
            return self._functional(TokenModel, config)
        if class_name in _FUNCTIONAL and not is_own:
            return self._functional(keras.Model, config)
        if class_name == _INPUT and not is_own:
            return self._input(config)
        return self._create(item, _OWN_LAYERS if is_own else _KERAS_LAYERS)

    def _count(self, class_name: str, config: dict[str, Any]) -> None:
        self._spend(1)
        if class_name == BertEncoder.__name__:
            count = max(0, _expect(config.get("num_hidden_layers"), int, "a number of layers"))
            self._hidden_layers_left -= count
            if self._hidden_layers_left < 0:
                raise ValueError("its encoders have more layers than the file has weights")
            self._spend(_LAYERS_PER_HIDDEN_LAYER * count)
        elif class_name == layers.TransformerBlock.__name__:
            self._spend(_LAYERS_PER_HIDDEN_LAYER)

    def _spend(self, count: int) -> None:
        self._layers_left -= count
        if self._layers_left < 0:
            limit = _LAYERS_PER_HIDDEN_LAYER * budget.MAX_LAYERS
            raise Refused(f"it has more than {limit} layers")

    def _create(self, item: Any, known: _Constructors) -> Any:
        """Return an object of one of the known classes."""
        config = _config_of(item)
        class_name = item["class_name"]
        is_own = known is _OWN_LAYERS
        module = str(item.get("module")).partition(".")[0]
        registered_name = f"{_OWN_PACKAGE}>{class_name}" if is_own else None
        is_listed = class_name in known and item.get("registered_name") == registered_name
        if not is_listed or not (is_own or module == "keras"):
            raise Refused(f"it contains {_name_of(item)}, which can run code or is not known")
        constructor, names = known[class_name]
        arguments = {name: value for name, value in config.items() if name not in _IGNORED}
        _check_names(class_name, arguments, names)
        return constructor(**{n: self._argument(class_name, n, v) for n, v in arguments.items()})

    def _argument(self, class_name: str, name: str, value: Any) -> Any:
        """Return the value of an argument of a constructor."""
        if name in _LAYERS and value is not None:
            return self.layer(value)
        if name in _OBJECTS and isinstance(value, dict):
            return self._create(value, _OBJECTS[name])
        if name == "policy_map":
            self._check_paths(_expect(value, dict, "a policy_map"))
            return {path: self._argument(class_name, "dtype", value[path]) for path in value}
        if isinstance(value, (list, dict)):
            is_long = len(value) > budget.MAX_OBJECTS and name not in _LONG_COLLECTIONS
            if name not in _COLLECTIONS or is_long:
                raise Refused(f"the argument {name} of {class_name} is {shown(value)}")
        is_known = name not in _STRINGS or (isinstance(value, str) and _STRINGS[name](value))
        if value is not None and not is_known:
            raise Refused(f"the argument {name} of {class_name} is {shown(value)}")
        return value

    def _check_paths(self, paths: Iterable[str]) -> None:
        """Check paths that Keras reads as regular expressions, and compares with each layer's."""
        self._paths.update(paths)
        # Python keeps 512 regular expressions; compiling one takes a millisecond.
        if len(self._paths) > budget.MAX_LAYERS or not all(map(_PATH.fullmatch, self._paths)):
            raise Refused(f"a policy_map of its config is {shown(sorted(self._paths))}")

    def _input(self, config: dict[str, Any]) -> Any:
        """Return an input of a model, a tensor."""
        _check_names(_INPUT, config, _OF_INPUT)
        shape = _expect(config.get("batch_shape"), list, "a shape")
        sizes = [size for size in shape if size is not None]
        if len(shape) > budget.MAX_RANK or not all(_is_size(size) for size in sizes):
            raise Refused(f"an input of its config has the shape {shown(shape)}")
        dtype = self._argument(_INPUT, "dtype", config.get("dtype"))
        return keras.Input(batch_shape=shape, dtype=dtype, name=_text(config.get("name")))

    def _functional(self, kind: type[keras.Model], config: dict[str, Any]) -> keras.Model:
        """Return a functional model, whose layers are called once each."""
        _check_names(kind.__name__, config, _OF_FUNCTIONAL)
        outputs: dict[str, list[Any]] = {}  # of each layer, flattened
        for item in _expect(config.get("layers"), list, "a list"):
            layer = self.layer(item)
            calls = _expect(item.get("inbound_nodes"), list, "a list")
            if len(calls) != (0 if item["class_name"] == _INPUT else 1):
                raise Refused(f"its layer {shown(layer.name)} is called {len(calls)} times")
            if layer.name in outputs:
                raise Refused(f"two of its layers have the name {shown(layer.name)}")
            output = self._call(layer, calls[0], outputs) if calls else layer
            outputs[layer.name] = keras.tree.flatten(output)
        model = kind(
            _references(config.get("input_layers"), outputs),
            _references(config.get("output_layers"), outputs),
            name=_text(config.get("name")),
        )
        if not _expect(config.get("trainable", True), bool, "true or false for trainable"):
            model.trainable = False
        return model

    def _call(self, layer: Any, call: Any, outputs: dict[str, list[Any]]) -> Any:
        """Return the outputs of a layer, called with the arguments of a config."""
        if not isinstance(call, dict):
            raise Refused("its config is in the format of Keras 2; save the model with Keras 3")
        arguments = self._tensors(_expect(call.get("args"), list, "a list"), outputs)
        options = {}
        for name, value in _expect(call.get("kwargs", {}), dict, "keywords").items():
            if name == "training" and isinstance(value, bool):
                options[name] = value
            elif not _is_none(value):
                options[name] = self._tensors(value, outputs)
        # Keras would run a call without symbolic tensors at once.
        if not any(isinstance(part, keras.KerasTensor) for part in keras.tree.flatten(arguments)):
            raise Refused(f"its layer {shown(layer.name)} is called without a tensor")
        return layer(*arguments, **options)

    def _tensors(self, value: Any, outputs: dict[str, list[Any]]) -> Any:
        """Return the arguments of a call: a tensor, `None`, or a list or a dict of them."""
        if value is None:
            return None
        if isinstance(value, list):
            return [self._tensors(part, outputs) for part in value]
        if not isinstance(value, dict):
            raise Refused(f"a layer of its config is called with {shown(value)}")
        if value.get("class_name") == "__keras_tensor__":
            self._tensors_left -= 1
            if self._tensors_left < 0:
                raise Refused(f"its layers have more than {budget.MAX_OBJECTS} inputs")
            return _reference(_config_of(value).get("keras_history"), outputs)
        if "class_name" in value:
            raise Refused(f"a layer of its config is called with {_name_of(value)}")
        return {name: self._tensors(part, outputs) for name, part in value.items()}


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 <= size < budget.MAX_TOKENS


def _check_names(class_name: str, arguments: dict[str, Any], known: frozenset[str]) -> None:
    """Check that all arguments are known. A new version of Keras may write others that are off."""
    for name in arguments.keys() - known:
        if arguments[name] is not None and arguments[name] is not False:
            raise Refused(f"{class_name} has the argument {shown(name)}, which is not known")


def _references(value: Any, outputs: dict[str, list[Any]]) -> Any:
    """Return the tensors of a model's inputs or outputs: one, or a list or a dict of them."""
    if isinstance(value, dict):
        return {name: _references(part, outputs) for name, part in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return [_references(part, outputs) for part in value]
    return _reference(value, outputs)


def _reference(value: Any, outputs: dict[str, list[Any]]) -> Any:
    """Return an output of a layer. As each layer is called once, the second part says nothing."""
    types = [type(part) for part in _expect(value, list, "a list")]
    if types != [str, int, int] or not 0 <= value[2] < len(outputs.get(value[0], ())):
        raise Refused(
            f"its config must name an output of an earlier layer; received {shown(value)}"
        )
    return outputs[value[0]][value[2]]


def _config_of(item: Any) -> dict[str, Any]:
    """Return the config of an object whose class has a name."""
    _expect(_expect(item, dict, "an object").get("class_name"), str, "a class")
    config: dict[str, Any] = _expect(item.get("config"), dict, f"the config of {_name_of(item)}")
    return config


def _expect(value: Any, kind: type, what: str) -> Any:
    """Return a value of a type. `True` is no integer."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refused(f"its config has {shown(value)} in place of {what}")
    return value


def _text(value: Any) -> str:
    return str(_expect(value, str, "a name"))


def _is_none(value: Any) -> bool:
    return all(part is None for part in keras.tree.flatten(value))


def _name_of(item: dict[str, Any]) -> str:
    """Return the name of an object for an error message."""
    return str(printable(f"{item.get('module')}.{item.get('class_name')}", 200))
