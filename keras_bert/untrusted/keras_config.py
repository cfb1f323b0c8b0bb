"""Rewrite the config of an untrusted Keras model, so that it names only listed objects.

Keras creates every object that a config names, imports modules to find it, and resolves strings to
registered classes. So Keras does not see the config of an untrusted file. It sees the result of
`rewrite`, which is made from values of a few types and from the objects in `keras_objects`.
"""

import re
from collections.abc import Iterator
from typing import Any

from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import keras_objects, keras_work
from keras_bert.untrusted import keras_values as values
from keras_bert.untrusted.keras_objects import Kind
from keras_bert.untrusted.keras_values import Refused

_MAX_PATHS = 500  # of the dtype policies of a layer
_MAX_DIMENSIONS = 16  # of a shape
_MAX_TEXT = 1000  # characters of an argument
_DTYPE = re.compile(r"[a-z0-9_/-]{1,40}")
_ARRAYS = ("__numpy__", "__tensor__")


def rewrite(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a model, rewritten to name only objects in `keras_objects`.

    Raise `Refused` for any other object. Leave out the configs of optimizers, losses and metrics.
    """
    values.check_size(config)
    rewritten = _object(config, (*keras_objects.MODELS, keras_objects.OWN_LAYERS))
    keras_work.check_work(rewritten)
    return rewritten


def _object(item: Any, kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """Rewrite the module, the class and the config of an object of one of the given kinds."""
    if not isinstance(item, dict):
        raise Refused(f"its config has {shown(item)} in place of an object")
    kind = _kind_of(item, kinds)
    config = item.get("config")
    if not isinstance(config, dict):
        raise Refused(
            f"the config of {values.name_of(item)} must be a dict; received {shown(config)}"
        )
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
        rewritten["build_config"] = values.shapes(item["build_config"])
    return rewritten


def _is_own(kind: Kind) -> bool:
    return kind.modules == {keras_objects.OWN_PACKAGE}


def _kind_of(item: dict[str, Any], kinds: tuple[Kind, ...]) -> Kind:
    class_name = item.get("class_name")
    registered_name = item.get("registered_name")
    for kind in kinds:
        if not values.is_in(class_name, kind.classes):
            continue
        if _is_own(kind):
            is_listed = registered_name == f"{keras_objects.OWN_PACKAGE}>{class_name}"
        else:
            is_own_name = registered_name is None or registered_name == class_name
            is_listed = is_own_name and values.is_in(item.get("module"), kind.modules)
        if is_listed:
            return kind
    raise Refused(f"it contains {values.name_of(item)}, which can run code or is not known")


def _config(kind: Kind, config: dict[str, Any], class_name: str) -> dict[str, Any]:
    """Rewrite the arguments of an object."""
    if kind in (keras_objects.FUNCTIONAL, keras_objects.OWN_FUNCTIONAL):
        return _functional(config)
    if class_name == "DTypePolicyMap":
        policies = config.get("policy_map")
        if not isinstance(policies, dict):
            raise Refused("the policy_map of a DTypePolicyMap must be a dict")
        if len(policies) > _MAX_PATHS:
            raise Refused(f"a DTypePolicyMap has {len(policies)} paths")
        return {
            "default_policy": _dtype(config.get("default_policy")),
            "policy_map": {
                values.layer_path(path): _dtype(policy) for path, policy in policies.items()
            },
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
            arguments[name] = values.plain(value)
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
    arguments[key] = [_object(layer, kinds) for layer in values.list_of(config.get(key))]
    return arguments


def _argument(class_name: str, name: str, value: Any) -> Any:
    """Rewrite an argument of a constructor."""
    if name in keras_objects.VALUE_ARGUMENTS:
        return _short(class_name, name, values.plain(value))
    if name in keras_objects.SHAPE_ARGUMENTS:
        return values.shapes(value)
    if name in keras_objects.DTYPE_ARGUMENTS:
        return _dtype(value)
    for group in keras_objects.OBJECT_ARGUMENTS:
        if name in group.arguments:
            return None if value is None else _named(value, group)
    raise Refused(f"{class_name} has the argument {shown(name)}, which is not known")


def _short(class_name: str, name: str, value: Any) -> Any:
    """Return a value without long lists or strings."""
    if isinstance(value, (list, dict)):
        for item in values.children(value):
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
        if not values.is_in(value.get("module"), keras_objects.ACTIVATION_MODULES):
            raise Refused(f"it contains the function {values.name_of(value)}")
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


def _functional(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the layers and the calls of a functional model."""
    layers = [_layer_with_calls(layer) for layer in values.list_of(config.get("layers"))]
    inputs_of = {layer["name"]: _input_names(layer) for layer in layers}
    input_layers = {layer["name"] for layer in layers if layer["class_name"] == "InputLayer"}
    if len(inputs_of) < len(layers):
        raise Refused("two layers of a model have the same name")
    outputs = values.plain(config.get("output_layers"))
    keras_work.check_order(layers)
    used = {name for name, _, _ in _references(outputs)} | input_layers
    _check_used(inputs_of, used)
    rewritten = {
        "layers": layers,
        "input_layers": values.plain(config.get("input_layers")),
        "output_layers": outputs,
    }
    for name in ("name", "trainable"):
        if name in config:
            rewritten[name] = values.plain(config[name])
    return rewritten


def _layer_with_calls(item: Any) -> dict[str, Any]:
    """Rewrite a layer or an operation of a functional model, with its calls."""
    rewritten = _object(item, (*keras_objects.LAYERS, keras_objects.OPERATIONS))
    rewritten["name"] = values.printable_text(item.get("name"))
    rewritten["inbound_nodes"] = [_call(node) for node in values.list_of(item.get("inbound_nodes"))]
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
        "args": _call_argument(values.list_of(node.get("args"))),
        "kwargs": _call_argument(node.get("kwargs", {})),
    }
    if next(values.tensors(call), None) is None:
        raise Refused("its config has a call without a symbolic input")
    return call


def _call_argument(value: Any) -> Any:
    """Rewrite an argument of a call, which can hold tensors, arrays and slices."""
    if isinstance(value, list):
        if len(value) > values.MAX_ARGUMENTS:
            raise Refused(f"a call of its config has a list of {len(value)} values")
        return [_call_argument(item) for item in value]
    if not isinstance(value, dict):
        return values.plain(value)
    if "class_name" not in value:
        return {values.text(name): _call_argument(item) for name, item in value.items()}
    class_name = value["class_name"]
    config = value.get("config")
    if class_name == "__ellipsis__":
        return {"class_name": class_name, "config": {}}
    if not isinstance(config, dict):
        raise Refused(f"it contains {values.name_of(value)}, which can run code or is not known")
    if class_name == "__slice__":
        # Only integers: Keras does not find a tensor in a slice, and would compute at once.
        parts = {part: values.index(config.get(part)) for part in ("start", "stop", "step")}
        return {"class_name": class_name, "config": parts}
    if class_name in _ARRAYS and values.is_in(config.get("dtype"), keras_objects.DTYPES):
        array = {"value": values.numbers(config.get("value")), "dtype": config["dtype"]}
        return {"class_name": class_name, "config": array}
    if class_name == "__keras_tensor__":
        tensor = {
            "shape": values.shapes(config.get("shape")),
            "dtype": _dtype(config.get("dtype")),
            "keras_history": list(_reference(config.get("keras_history"))),
        }
        return {"class_name": class_name, "config": tensor}
    raise Refused(f"it contains {values.name_of(value)}, which can run code or is not known")


def _has_arrays(value: Any) -> bool:
    if isinstance(value, dict) and value.get("class_name") in _ARRAYS:
        return True
    return any(map(_has_arrays, values.children(value)))


def _input_names(layer: dict[str, Any]) -> set[str]:
    """Return the names of the layers whose outputs a layer takes."""
    return {tensor["keras_history"][0] for tensor in values.tensors(layer["inbound_nodes"])}


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
    for item in values.children(value):
        yield from _references(item)


def _reference(value: Any) -> tuple[str, int, int]:
    types = [type(item) for item in values.list_of(value)]
    if types != [str, int, int] or min(value[1:]) < 0:
        raise Refused(f"its config must name the output of a layer; received {shown(value)}")
    name, call, position = value
    return values.text(name), call, position
