"""Rewrite the config of an untrusted Keras model, so that it names only listed objects.

Keras creates every object that a config names, imports modules to find it, and resolves strings to
registered classes. So Keras does not see the config of an untrusted file. It sees the result of
`rewrite`, which is made from values of a few types and from the objects in `keras_objects`.
"""

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert.runtime.escaping import printable, shown
from keras_bert.untrusted import keras_objects
from keras_bert.untrusted.keras_objects import Kind

_MAX_DEPTH = 100  # levels of nested JSON values; a model in a model takes four levels
_MAX_VALUES = 1_000_000
_MAX_LAYERS = 500  # Keras takes about 10 ms to build each
# Calls of layers plus their inputs. A nested model counts once for each of its calls.
_MAX_CALLS = 10_000
_MAX_POLICIES = 5_000  # paths of dtype policies; Keras tries each for each layer
_MAX_DIMENSIONS = 16  # of a shape
_LAYERS_PER_HIDDEN_LAYER = 4  # Keras layers in a hidden layer of an encoder
_MAX_TEXT = 1000  # characters of an argument
_MAX_ARGUMENTS = 1000  # tensors or numbers in a list of a call; shapes of a layer
_VALUES_PER_CALL = 100  # reading 100 values takes Keras as long as a call of a layer
_MAX_INTEGER = 2**53
_PATH = re.compile(r"[\w/-]{1,500}")
_DTYPE = re.compile(r"[a-z0-9_/-]{1,40}")
_LARGE_LAYERS = (
    "TransformerBlock",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "GroupedQueryAttention",
)
_ARRAYS = ("__numpy__", "__tensor__")
_MODEL_CLASSES = frozenset.union(*(kind.classes for kind in keras_objects.MODELS))
_LAYERS_IN_LAYERS = ("layer", "forward_layer", "backward_layer", "cell")


class Refused(ValueError):
    """The config has an object or a value that an untrusted model must not have."""


def rewrite(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a model, rewritten to name only objects in `keras_objects`.

    Raise `Refused` for any other object. Leave out the configs of optimizers, losses and metrics.
    """
    _check_size(config)
    rewritten = _object(config, (*keras_objects.MODELS, keras_objects.OWN_LAYERS))
    _check_work(rewritten)
    return rewritten


def _count_text(count: int) -> str:
    """Return a count for an error. Python refuses to print a number of thousands of digits."""
    if count < 10**6:
        return str(count)
    return f"10**{math.floor(math.log10(count))} or more"


def _check_size(config: Any) -> None:
    """Check the depth and the number of values, without recursion."""
    count = 0
    level = [config]
    for _ in range(_MAX_DEPTH):
        count += len(level)
        if count > _MAX_VALUES:
            raise Refused(f"its config has more than {_MAX_VALUES} values")
        level = list(itertools.chain.from_iterable(map(_children, level)))
        if not level:
            return
    raise Refused(f"its config nests values more than {_MAX_DEPTH} levels deep")


def _children(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list):
        yield from item


# Objects


def _object(item: Any, kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """Rewrite the module, the class and the config of an object of one of the given kinds."""
    if not isinstance(item, dict):
        raise Refused(f"its config has {shown(item)} in place of an object")
    kind = _kind_of(item, kinds)
    config = item.get("config")
    if not isinstance(config, dict):
        raise Refused(f"the config of {_name(item)} must be a dict; received {shown(config)}")
    rewritten = {
        "module": item["module"],
        "class_name": item["class_name"],
        "registered_name": None,
        "config": _config(kind, config, item["class_name"]),
    }
    if _is_own(kind):
        rewritten["module"] = keras_objects.OWN_PACKAGE
        rewritten["registered_name"] = f"{keras_objects.OWN_PACKAGE}>{item['class_name']}"
    if item.get("build_config") is not None:
        rewritten["build_config"] = _shapes(item["build_config"])
    return rewritten


def _is_own(kind: Kind) -> bool:
    return kind.modules == {keras_objects.OWN_PACKAGE}


def _kind_of(item: dict[str, Any], kinds: tuple[Kind, ...]) -> Kind:
    class_name = item.get("class_name")
    registered_name = item.get("registered_name")
    for kind in kinds:
        if not _is_in(class_name, kind.classes):
            continue
        if _is_own(kind):
            is_listed = registered_name == f"{keras_objects.OWN_PACKAGE}>{class_name}"
        else:
            is_own_name = registered_name is None or registered_name == class_name
            is_listed = is_own_name and _is_in(item.get("module"), kind.modules)
        if is_listed:
            return kind
    raise Refused(f"it contains {_name(item)}, which can run code or is not known")


def _config(kind: Kind, config: dict[str, Any], class_name: str) -> dict[str, Any]:
    """Rewrite the arguments of an object."""
    if kind in (keras_objects.FUNCTIONAL, keras_objects.OWN_FUNCTIONAL):
        return _functional(config)
    if class_name == "DTypePolicyMap":
        policies = config.get("policy_map")
        if not isinstance(policies, dict):
            raise Refused("the policy_map of a DTypePolicyMap must be a dict")
        if len(policies) > _MAX_LAYERS:
            raise Refused(f"a DTypePolicyMap has {len(policies)} paths")
        return {
            "default_policy": _dtype(config.get("default_policy")),
            "policy_map": {_path(path): _dtype(policy) for path, policy in policies.items()},
        }
    if class_name == "Sequential":
        return _arguments_with_layers(class_name, config, "layers", keras_objects.LAYERS)
    if class_name == "StackedRNNCells":
        return _arguments_with_layers(class_name, config, "cells", (keras_objects.CELLS,))
    for option in ("unroll", "stateful"):  # with these, Keras computes when it builds the layer
        if config.get(option):
            raise Refused(f"it contains {class_name} with {option}=True; save it with False")
    arguments = {}
    for name, value in config.items():
        if _is_own(kind) and name in keras_objects.OWN_ARGUMENTS:
            if isinstance(value, (list, dict)) and name not in keras_objects.OWN_COLLECTIONS:
                raise Refused(f"the argument {name} of {class_name} is {shown(value)}")
            arguments[name] = _plain(value)
        else:
            arguments[name] = _argument(class_name, name, value)
    return arguments


def _arguments_with_layers(
    class_name: str, config: dict[str, Any], key: str, kinds: tuple[Kind, ...]
) -> dict[str, Any]:
    """Rewrite the arguments of an object that holds a list of layers."""
    arguments = {
        name: _argument(class_name, name, value) for name, value in config.items() if name != key
    }
    arguments[key] = [_object(layer, kinds) for layer in _list(config.get(key))]
    return arguments


def _argument(class_name: str, name: str, value: Any) -> Any:
    """Rewrite an argument of a constructor."""
    if name in keras_objects.VALUE_ARGUMENTS:
        return _short(class_name, name, _plain(value))
    if name in keras_objects.SHAPE_ARGUMENTS:
        return _shapes(value)
    if name in keras_objects.DTYPE_ARGUMENTS:
        return _dtype(value)
    for group in keras_objects.OBJECT_ARGUMENTS:
        if name in group.arguments:
            return None if value is None else _named(value, group)
    raise Refused(f"{class_name} has the argument {shown(name)}, which is not known")


def _short(class_name: str, name: str, value: Any) -> Any:
    """Return a value without long lists or strings."""
    if isinstance(value, (list, dict)):
        for item in _children(value):
            _short(class_name, name, item)
        is_long = len(value) > _MAX_DIMENSIONS
    else:
        is_long = isinstance(value, str) and len(value) > _MAX_TEXT
    if is_long:
        raise Refused(f"the argument {name} of {class_name} has {len(value)} values")
    return value


def _named(value: Any, group: keras_objects.ObjectArguments) -> Any:
    """Rewrite an object, or the name or the function that stands for it."""
    if isinstance(value, dict) and value.get("class_name") == "function":
        if not _is_in(value.get("module"), keras_objects.ACTIVATION_MODULES):
            raise Refused(f"it contains the function {_name(value)}")
        value = value.get("config")
    if isinstance(value, str):
        if value not in group.function_names:
            raise Refused(f"it contains {shown(value)}, which is not one of the known functions")
        return value
    return _object(value, group.kinds)


def _dtype(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        if not _DTYPE.fullmatch(value):
            raise Refused(f"a dtype of its config is {shown(value)}")
        return value
    return _object(value, (keras_objects.DTYPE_POLICIES,))


# Functional models


def _functional(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the layers and the calls of a functional model."""
    layers = [_layer_with_calls(layer) for layer in _list(config.get("layers"))]
    inputs_of = {layer["name"]: _input_names(layer) for layer in layers}
    input_layers = {layer["name"] for layer in layers if layer["class_name"] == "InputLayer"}
    if len(inputs_of) < len(layers):
        raise Refused("two layers of a model have the same name")
    outputs = _plain(config.get("output_layers"))
    _check_order(layers)
    used = {name for name, _, _ in _references(outputs)} | input_layers
    _check_used(inputs_of, used)
    rewritten = {
        "layers": layers,
        "input_layers": _plain(config.get("input_layers")),
        "output_layers": outputs,
    }
    for name in ("name", "trainable"):
        if name in config:
            rewritten[name] = _plain(config[name])
    return rewritten


def _layer_with_calls(item: Any) -> dict[str, Any]:
    """Rewrite a layer or an operation of a functional model, with its calls."""
    rewritten = _object(item, (*keras_objects.LAYERS, keras_objects.OPERATIONS))
    rewritten["name"] = _layer_name(item.get("name"))
    rewritten["inbound_nodes"] = [_call(node) for node in _list(item.get("inbound_nodes"))]
    is_operation = rewritten["module"] in keras_objects.OPERATIONS.modules
    if not is_operation and _has_arrays(rewritten["inbound_nodes"]):
        # Keras computes at once if a layer gets an array, such as a mask.
        raise Refused(f"its layer {shown(rewritten['name'])} is called with an array")
    is_input = rewritten["class_name"] == "InputLayer"
    has_inputs = bool(rewritten["inbound_nodes"])
    if is_input and has_inputs:
        raise Refused(f"its input layer {shown(rewritten['name'])} has inputs")
    if not is_input and not has_inputs:
        raise Refused(f"its layer {shown(rewritten['name'])} has no inputs")
    return rewritten


def _call(node: Any) -> dict[str, Any]:
    """Rewrite the arguments of one call. Keras would run a call without symbolic input at once."""
    if not isinstance(node, dict):
        raise Refused("its config has a call in the format of Keras 2; save the model with Keras 3")
    call = {
        "args": _call_argument(_list(node.get("args"))),
        "kwargs": _call_argument(node.get("kwargs", {})),
    }
    if next(_tensors(call), None) is None:
        raise Refused("its config has a call without a symbolic input")
    return call


def _call_argument(value: Any) -> Any:
    """Rewrite an argument of a call, which can hold tensors, arrays and slices."""
    if isinstance(value, list):
        if len(value) > _MAX_ARGUMENTS:
            raise Refused(f"a call of its config has a list of {len(value)} values")
        return [_call_argument(item) for item in value]
    if not isinstance(value, dict):
        return _plain(value)
    if "class_name" not in value:
        return {_text(name): _call_argument(item) for name, item in value.items()}
    class_name = value["class_name"]
    config = value.get("config")
    if class_name == "__ellipsis__":
        return {"class_name": class_name, "config": {}}
    if not isinstance(config, dict):
        raise Refused(f"it contains {_name(value)}, which can run code or is not known")
    if class_name == "__slice__":
        # Only integers: Keras does not find a tensor in a slice, and would compute at once.
        parts = {part: _index(config.get(part)) for part in ("start", "stop", "step")}
        return {"class_name": class_name, "config": parts}
    if class_name in _ARRAYS and _is_in(config.get("dtype"), keras_objects.DTYPES):
        array = {"value": _numbers(config.get("value")), "dtype": config["dtype"]}
        return {"class_name": class_name, "config": array}
    if class_name == "__keras_tensor__":
        tensor = {
            "shape": _shapes(config.get("shape")),
            "dtype": _dtype(config.get("dtype")),
            "keras_history": list(_reference(config.get("keras_history"))),
        }
        return {"class_name": class_name, "config": tensor}
    raise Refused(f"it contains {_name(value)}, which can run code or is not known")


def _tensors(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the configs of the symbolic tensors in rewritten arguments."""
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        yield value["config"]
        return
    for item in _children(value):
        yield from _tensors(item)


def _has_arrays(value: Any) -> bool:
    if isinstance(value, dict) and value.get("class_name") in _ARRAYS:
        return True
    return any(map(_has_arrays, _children(value)))


def _input_names(layer: dict[str, Any]) -> set[str]:
    """Return the names of the layers whose outputs a layer takes."""
    return {tensor["keras_history"][0] for tensor in _tensors(layer["inbound_nodes"])}


def _check_order(layers: list[dict[str, Any]]) -> None:
    """Check how often Keras tries to call layers before their inputs exist.

    Keras goes through the layers again and again. In each round, it tries the calls of a layer up
    to the first call whose inputs are missing, and it reads the arguments of a call at each try.
    """
    calls_left = {layer["name"]: _waiting_calls(layer) for layer in layers}
    # An input layer has no calls, but one output.
    calls_done = {name: 0 if calls else 1 for name, calls in calls_left.items()}
    work = 0
    is_progressing = True
    while is_progressing:
        is_progressing = False
        for name, calls in calls_left.items():
            while calls:
                inputs, cost = calls[-1]
                work += cost
                if work > _MAX_CALLS:
                    raise Refused("its layers are in an order that takes long to build")
                if any(calls_done.get(source, 0) <= call for source, call in inputs):
                    break
                calls.pop()
                calls_done[name] += 1
                is_progressing = True
    if any(calls_left.values()):
        raise Refused("its layers wait for each other")


def _waiting_calls(layer: dict[str, Any]) -> list[tuple[list[tuple[str, int]], int]]:
    """Return the calls of a layer, the last call first, as pairs of inputs and cost.

    An input is the name of a layer and the index of its call.
    """
    calls = []
    for node in reversed(layer["inbound_nodes"]):
        histories = [tensor["keras_history"] for tensor in _tensors(node)]
        inputs = [(name, call) for name, call, _ in histories]
        cost = 1 + len(inputs) + _count_values(node) // _VALUES_PER_CALL
        calls.append((inputs, cost))
    return calls


def _count_values(value: Any) -> int:
    return 1 + sum(_count_values(item) for item in _children(value))


def _check_used(inputs_of: dict[str, set[str]], outputs: set[str]) -> None:
    """Check that the outputs depend on all layers.

    Keras does not list the variables of an unused layer among those of the model.
    """
    used: set[str] = set()
    unvisited = list(outputs)
    while unvisited:
        name = unvisited.pop()
        if name not in used:
            used.add(name)
            unvisited += inputs_of.get(name, ())
    for name in inputs_of:
        if name not in used:
            raise Refused(f"its layer {shown(name)} is not used by the model's outputs")


def _references(value: Any) -> Iterator[tuple[str, int, int]]:
    """Yield the outputs of layers in a nested structure: name, call, position."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        yield _reference(value)
        return
    for item in _children(value):
        yield from _references(item)


def _reference(value: Any) -> tuple[str, int, int]:
    types = [type(item) for item in _list(value)]
    if types != [str, int, int] or min(value[1:]) < 0:
        raise Refused(f"its config must name the output of a layer; received {shown(value)}")
    name, call, position = value
    return _text(name), call, position


def _check_work(model: dict[str, Any]) -> None:
    """Check how many layers Keras builds and calls when it builds a rewritten model."""
    layers = _count_layers(model)
    if layers > _MAX_LAYERS:
        raise Refused(f"it has {_count_text(layers)} layers, at most {_MAX_LAYERS} are allowed")
    calls = _calls_to_build(model)
    if calls > _MAX_CALLS:
        raise Refused(
            f"its layers have {_count_text(calls)} calls and inputs, at most {_MAX_CALLS} are "
            "allowed"
        )
    policies = _count_policies(model)
    if policies > _MAX_POLICIES:
        raise Refused(f"it has {policies} dtype policies, at most {_MAX_POLICIES} are allowed")


def _inner_layers(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the layers that a rewritten model or wrapper holds."""
    config = item["config"]
    layers = [config[name] for name in _LAYERS_IN_LAYERS if isinstance(config.get(name), dict)]
    if item["class_name"] == "StackedRNNCells":
        layers += config["cells"]
    elif item["class_name"] in _MODEL_CLASSES:
        layers += config["layers"]
    return layers


def _count_layers(item: dict[str, Any]) -> int:
    if item["class_name"] == "BertEncoder":
        return _LAYERS_PER_HIDDEN_LAYER * _integer(item["config"].get("num_hidden_layers"))
    if item["class_name"] in _LARGE_LAYERS:
        return _LAYERS_PER_HIDDEN_LAYER
    return 1 + sum(_count_layers(layer) for layer in _inner_layers(item))


def _count_calls(item: dict[str, Any]) -> int:
    """Return the calls of layers in one call of a layer."""
    return 1 + sum(map(_count_all_calls, _inner_layers(item)))


def _count_all_calls(layer: dict[str, Any]) -> int:
    """Return the calls of layers in all calls of a layer, and the inputs of the layer."""
    nodes = layer.get("inbound_nodes", ())
    calls = max(1, len(nodes))
    inputs = sum(1 for _ in _tensors(nodes))
    return calls * _count_calls(layer) + inputs


def _count_policies(value: Any) -> int:
    if isinstance(value, dict) and value.get("class_name") == "DTypePolicyMap":
        return len(value["config"]["policy_map"])
    return sum(map(_count_policies, _children(value)))


def _calls_to_build(item: dict[str, Any]) -> int:
    """Return the calls of layers while Keras builds a model.

    A `Sequential` calls the layers that it has so far again for each layer that is added.
    """
    layers = _inner_layers(item)
    calls = 0
    for index, layer in enumerate(layers):
        calls += _calls_to_build(layer) + _count_all_calls(layer)
        if item["class_name"] == "Sequential":
            calls += _count_calls(layer) * (len(layers) - index)
    return calls


def count_encoder_layers(config: Any) -> int:
    """Return the number of hidden layers of all encoders in a rewritten config."""
    if isinstance(config, dict) and config.get("class_name") == "BertEncoder":
        return _integer(config["config"].get("num_hidden_layers"))
    return sum(count_encoder_layers(item) for item in _children(config))


# Values


def _plain(value: Any) -> Any:
    """Return a value of numbers, strings, lists and dicts. Objects in it are `Refused`."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if "class_name" in value:
        raise Refused(f"it contains {_name(value)} in place of a number or a string")
    return {_text(name): _plain(item) for name, item in value.items()}


def _number(value: int | float) -> int | float:
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        sign = "-" if value < 0 else ""
        raise Refused(f"a number of its config is {sign}{_count_text(abs(value))}")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"its config has {shown(value)} in place of a size")
    return value


def _index(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise Refused(f"a slice of its config has the bound {shown(value)}")
    return value


def _numbers(value: Any) -> Any:
    """Return a number, or nested lists of numbers and Booleans."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if not isinstance(value, (bool, int, float)):
        raise Refused(f"an array of its config has the value {shown(value)}")
    return value if isinstance(value, bool) else _number(value)


def _shapes(value: Any) -> Any:
    """Return a shape, or a list or dict of shapes. A shape has sizes and `None`."""
    if isinstance(value, dict):
        return {_text(name): _shapes(item) for name, item in value.items()}
    if isinstance(value, list):
        is_shape = not any(isinstance(item, list) for item in value)
        if len(value) > (_MAX_DIMENSIONS if is_shape else _MAX_ARGUMENTS):
            raise Refused(f"a shape of its config has {len(value)} dimensions")
        return [_shapes(item) for item in value]
    if value is None or value == -1:
        return value
    return _number(_integer(value))


def _text(value: Any) -> str:
    """Return a string that Keras does not resolve to a class or a function."""
    if not isinstance(value, str):
        raise Refused(f"its config has {shown(value)} in place of a string")
    if value in keras.saving.get_custom_objects():
        raise Refused(f"it contains {shown(value)}, the name of a class, in place of a string")
    return value


def _layer_name(value: Any) -> str:
    name = _text(value)
    if not name.isprintable():
        raise Refused(f"its config has the name {shown(name)}")
    return name


def _is_in(value: Any, names: frozenset[str]) -> bool:
    """Return True for a string in a set. Other values of JSON may not be hashable."""
    return isinstance(value, str) and value in names


def _path(value: str) -> str:
    """Return the path of a layer. Keras reads it as a regular expression."""
    if not _PATH.fullmatch(value):
        raise Refused(f"a path in its dtype policies is {shown(value)}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(f"its config has {shown(value)} in place of a list")
    return value


def _name(item: dict[str, Any]) -> str:
    """Return the name of an object for an error message."""
    class_name = item.get("config") if item.get("class_name") == "function" else None
    name = f"{item.get('module')}.{class_name or item.get('class_name')}"
    return str(printable(name, 200))
