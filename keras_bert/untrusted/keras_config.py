"""Rewrite the config of an untrusted Keras model, so that it names only listed objects.

Keras creates every object that a config names, imports modules to find it, and resolves strings to
registered classes. So Keras does not see the config of an untrusted file. It sees the result of
`rewrite`, which is made from values of a few types and from the objects in `keras_objects`.
"""

import re
from typing import Any

from keras_bert.runtime.escaping import shown
from keras_bert.untrusted import keras_objects, keras_work
from keras_bert.untrusted import keras_values as values
from keras_bert.untrusted.keras_objects import Kind
from keras_bert.untrusted.keras_values import Refused, expect

_MAX_PATHS = 500  # of the dtype policies of a layer
_MAX_LENGTH = 16  # of a list in an argument of a constructor
_MAX_TEXT = 1000  # characters of an argument
_DTYPE = re.compile(r"[a-z0-9_/-]{1,40}")
_PATH = re.compile(r"[\w/-]{1,500}")  # of layers; Keras reads it as a regular expression
_ARRAYS = ("__numpy__", "__tensor__")
# Arguments that are lists of layers.
_LAYER_LISTS = {
    ("Sequential", "layers"): keras_objects.LAYERS,
    ("StackedRNNCells", "cells"): (keras_objects.CELLS,),
}


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
    expect(item, dict, "an object")
    kind = _kind_of(item, kinds)
    class_name = item["class_name"]
    config = expect(item.get("config"), dict, f"the config of {values.name_of(item)}")
    rewritten = {
        "module": keras_objects.OWN_PACKAGE if kind.is_own else item["module"],
        "class_name": class_name,
        "registered_name": _own_name(class_name) if kind.is_own else None,
        "config": _config(kind, config, class_name),
    }
    if item.get("build_config") is not None:
        rewritten["build_config"] = values.shapes(item["build_config"])
    if item.get("shared_object_id") is not None:
        rewritten["shared_object_id"] = expect(item["shared_object_id"], int, "a shared_object_id")
    return rewritten


def _own_name(class_name: str) -> str:
    return f"{keras_objects.OWN_PACKAGE}>{class_name}"


def _kind_of(item: dict[str, Any], kinds: tuple[Kind, ...]) -> Kind:
    class_name = item.get("class_name")
    registered_name = item.get("registered_name")
    for kind in kinds:
        if not values.is_in(class_name, kind.classes):
            continue
        if kind.is_own:
            is_listed = registered_name == _own_name(str(class_name))
        else:
            has_own_name = registered_name in (None, class_name)
            is_listed = has_own_name and values.is_in(item.get("module"), kind.modules)
        if is_listed:
            return kind
    raise Refused(f"it contains {values.name_of(item)}, which can run code or is not known")


def _config(kind: Kind, config: dict[str, Any], class_name: str) -> dict[str, Any]:
    """Rewrite the arguments of an object."""
    if kind in (keras_objects.FUNCTIONAL, keras_objects.OWN_FUNCTIONAL):
        return _functional(config)
    if class_name == "DTypePolicyMap":
        return _policy_map(config)
    for option in ("unroll", "stateful"):  # with these, Keras computes when it builds the layer
        if config.get(option):
            raise Refused(f"it contains {class_name} with {option}=True; save it with False")
    arguments = {}
    for name, value in config.items():
        kinds_in_list = _LAYER_LISTS.get((class_name, name))
        if kinds_in_list:
            layers = expect(value, list, "a list")
            arguments[name] = [_object(layer, kinds_in_list) for layer in layers]
        elif kind.is_own and name in keras_objects.OWN_ARGUMENTS:
            if isinstance(value, (list, dict)) and name not in keras_objects.OWN_COLLECTIONS:
                raise Refused(f"the argument {name} of {class_name} is {shown(value)}")
            arguments[name] = values.plain(value)
        else:
            arguments[name] = _argument(class_name, name, value)
    return arguments


def _policy_map(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the arguments of a `DTypePolicyMap`."""
    policies = expect(config.get("policy_map"), dict, "a policy_map")
    if len(policies) > _MAX_PATHS:
        raise Refused(f"a DTypePolicyMap has {len(policies)} paths")
    for path in policies:
        if not _PATH.fullmatch(path):
            raise Refused(f"a path in its dtype policies is {shown(path)}")
    return {
        "default_policy": _dtype(config.get("default_policy")),
        "policy_map": {path: _dtype(policy) for path, policy in policies.items()},
    }


def _argument(class_name: str, name: str, value: Any) -> Any:
    """Rewrite an argument of a constructor."""
    if name in keras_objects.VALUE_ARGUMENTS:
        _check_length(class_name, name, value)
        return values.plain(value)
    if name in keras_objects.SHAPE_ARGUMENTS:
        return values.shapes(value)
    if name in keras_objects.DTYPE_ARGUMENTS:
        return _dtype(value)
    for group in keras_objects.OBJECT_ARGUMENTS:
        if name in group.arguments:
            return None if value is None else _named(value, group)
    raise Refused(f"{class_name} has the argument {shown(name)}, which is not known")


def _check_length(class_name: str, name: str, value: Any) -> None:
    """Refuse long lists and strings."""
    most = _MAX_TEXT if isinstance(value, str) else _MAX_LENGTH
    if isinstance(value, (str, list, dict)) and len(value) > most:
        raise Refused(f"the argument {name} of {class_name} has {len(value)} values")
    for item in values.children(value):
        _check_length(class_name, name, item)


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
    if value is None or (isinstance(value, str) and _DTYPE.fullmatch(value)):
        return value
    return _object(value, (keras_objects.DTYPE_POLICIES,))


def _functional(config: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the layers and the calls of a functional model."""
    layers = [_layer_with_calls(layer) for layer in expect(config.get("layers"), list, "a list")]
    if len({layer["name"] for layer in layers}) < len(layers):
        raise Refused("two layers of a model have the same name")
    rewritten = {"layers": layers}
    for name in ("input_layers", "output_layers", "name", "trainable"):
        if name in config:
            rewritten[name] = values.plain(config[name])
    keras_work.check_order(layers)
    return rewritten


def _layer_with_calls(item: Any) -> dict[str, Any]:
    """Rewrite a layer or an operation of a functional model, with its calls."""
    rewritten = _object(item, (*keras_objects.LAYERS, keras_objects.OPERATIONS))
    name = values.text(item.get("name"))
    nodes = expect(item.get("inbound_nodes"), list, "a list")
    calls = [_call(node) for node in nodes]
    is_operation = rewritten["module"] in keras_objects.OPERATIONS.modules
    if not name.isprintable():
        raise Refused(f"its config has the name {shown(name)}")
    if not is_operation and _has_arrays(calls):
        # Keras computes at once if a layer gets an array, such as a mask.
        raise Refused(f"its layer {shown(name)} is called with an array")
    if bool(calls) == (rewritten["class_name"] == "InputLayer"):
        raise Refused(f"its layer {shown(name)} must have inputs, unless it is an InputLayer")
    return {**rewritten, "name": name, "inbound_nodes": calls}


def _call(node: Any) -> dict[str, Any]:
    """Rewrite the arguments of one call. Keras would run a call without symbolic input at once."""
    if not isinstance(node, dict):
        raise Refused("its config has a call in the format of Keras 2; save the model with Keras 3")
    call = {
        "args": _call_argument(expect(node.get("args"), list, "a list")),
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
    rewritten: dict[str, Any] = {}
    if class_name == "__ellipsis__":
        return {"class_name": class_name, "config": {}}
    if class_name == "__slice__" and isinstance(config, dict):
        for part in ("start", "stop", "step"):
            rewritten[part] = config.get(part)
            # Only integers: Keras does not find a tensor in a slice, and would compute at once.
            if rewritten[part] is not None:
                expect(rewritten[part], int, "the bound of a slice")
    elif class_name in _ARRAYS and isinstance(config, dict):
        if not values.is_in(config.get("dtype"), keras_objects.DTYPES):
            raise Refused(f"an array of its config has the dtype {shown(config.get('dtype'))}")
        rewritten = {"value": values.numbers(config.get("value")), "dtype": config["dtype"]}
    elif class_name == "__keras_tensor__" and isinstance(config, dict):
        rewritten["shape"] = values.shapes(config.get("shape"))
        rewritten["dtype"] = _dtype(config.get("dtype"))
        rewritten["keras_history"] = _reference(config.get("keras_history"))
    else:
        raise Refused(f"it contains {values.name_of(value)}, which can run code or is not known")
    return {"class_name": class_name, "config": rewritten}


def _has_arrays(value: Any) -> bool:
    if isinstance(value, dict) and value.get("class_name") in _ARRAYS:
        return True
    return any(map(_has_arrays, values.children(value)))


def _reference(value: Any) -> list[Any]:
    types = [type(item) for item in expect(value, list, "a list")]
    if types != [str, int, int] or min(value[1:]) < 0:
        raise Refused(f"its config must name the output of a layer; received {shown(value)}")
    values.text(value[0])
    return list(value)
