"""Limits on the work of Keras when it builds a model from an untrusted config.

The functions take configs that `keras_config` has rewritten.
"""

from typing import Any

from keras_bert.untrusted.keras_values import Refused, children, expect, tensors

_MAX_LAYERS = 500  # Keras takes about 10 ms to build each
# Calls of layers plus their inputs. A nested model counts once for each of its calls.
_MAX_CALLS = 10_000
_MAX_POLICIES = 5_000  # paths of dtype policies; Keras tries each for each layer
_LAYERS_PER_HIDDEN_LAYER = 4  # Keras layers in a hidden layer of an encoder
_VALUES_PER_CALL = 100  # reading 100 values takes Keras as long as a call of a layer
_LARGE_LAYERS = (
    "TransformerBlock",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "GroupedQueryAttention",
)
_LAYERS_IN_LAYERS = ("layer", "forward_layer", "backward_layer", "cell")


def check_order(layers: list[dict[str, Any]]) -> None:
    """Check how often Keras tries to call layers before their inputs exist.

    Keras goes through the layers again and again. In each round, it tries the calls of a layer up
    to the first call whose inputs are missing, and it reads the arguments of a call at each try.
    """
    calls_left = {layer["name"]: layer["inbound_nodes"][::-1] for layer in layers}
    # An input layer has no calls, but one output.
    calls_done = {name: 0 if calls else 1 for name, calls in calls_left.items()}
    cost_of = {id(call): _cost(call) for calls in calls_left.values() for call in calls}
    work = 0
    is_progressing = True
    while is_progressing:
        is_progressing = False
        for name, calls in calls_left.items():
            while calls:
                work += cost_of[id(calls[-1])]
                if work > _MAX_CALLS:
                    raise Refused("its layers are in an order that takes long to build")
                inputs = [tensor["keras_history"] for tensor in tensors(calls[-1])]
                if any(calls_done.get(source, 0) <= call for source, call, _ in inputs):
                    break
                calls.pop()
                calls_done[name] += 1
                is_progressing = True
    if any(calls_left.values()):
        raise Refused("its layers wait for each other")


def _cost(call: dict[str, Any]) -> int:
    """Return the cost of a try to call a layer, in calls of a small layer."""
    return 1 + sum(1 for _ in tensors(call)) + _count_values(call) // _VALUES_PER_CALL


def _count_values(value: Any) -> int:
    return 1 + sum(map(_count_values, children(value)))


def check_work(model: dict[str, Any]) -> None:
    """Check how many layers Keras builds and calls when it builds a rewritten model."""
    for count, limit, what in (
        (_count_layers(model), _MAX_LAYERS, "layers"),
        (_calls_to_build(model), _MAX_CALLS, "calls and inputs of layers"),
        (_count_policies(model), _MAX_POLICIES, "dtype policies"),
    ):
        if count > limit:
            raise Refused(f"it has {count} {what}, at most {limit} are allowed")


def _inner_layers(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the layers that a rewritten model or wrapper holds."""
    config = item["config"]
    layers = [config[name] for name in _LAYERS_IN_LAYERS if isinstance(config.get(name), dict)]
    return [*layers, *config.get("cells", ()), *config.get("layers", ())]


def _count_layers(item: dict[str, Any]) -> int:
    if item["class_name"] == "BertEncoder":
        return _LAYERS_PER_HIDDEN_LAYER * count_encoder_layers(item)
    if item["class_name"] in _LARGE_LAYERS:
        return _LAYERS_PER_HIDDEN_LAYER
    return 1 + sum(map(_count_layers, _inner_layers(item)))


def _count_calls(item: dict[str, Any]) -> int:
    """Return the calls of layers in one call of a layer."""
    return 1 + sum(map(_count_all_calls, _inner_layers(item)))


def _count_all_calls(layer: dict[str, Any]) -> int:
    """Return the calls of layers in all calls of a layer, and the inputs of the layer."""
    nodes = layer.get("inbound_nodes", ())
    inputs = sum(1 for _ in tensors(nodes))
    return max(1, len(nodes)) * _count_calls(layer) + inputs


def _calls_to_build(item: dict[str, Any]) -> int:
    """Return the calls of layers while Keras builds a model.

    A `Sequential` calls the layers that it has so far again for each layer that is added.
    """
    layers = _inner_layers(item)
    calls = sum(_calls_to_build(layer) + _count_all_calls(layer) for layer in layers)
    if item["class_name"] == "Sequential":
        calls += sum(_count_calls(layer) * count for count, layer in enumerate(layers[::-1], 1))
    return calls


def _count_policies(value: Any) -> int:
    if isinstance(value, dict) and value.get("class_name") == "DTypePolicyMap":
        return len(value["config"]["policy_map"])
    return sum(map(_count_policies, children(value)))


def count_encoder_layers(config: Any) -> int:
    """Return the number of hidden layers of all encoders in a rewritten config."""
    if isinstance(config, dict) and config.get("class_name") == "BertEncoder":
        count: int = expect(config["config"].get("num_hidden_layers"), int, "a size")
        return max(count, 0)
    return sum(map(count_encoder_layers, children(config)))
