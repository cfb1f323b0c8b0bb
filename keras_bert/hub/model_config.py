"""Find code in the config of a Keras model, before Keras builds the model.

Keras creates every object that a config names. Creating some objects calls functions, reads files
or opens connections. So an untrusted config may name only Keras' own layers, operations, losses
and the like, and classes that are registered in this process.
"""

import importlib
import inspect
import re

import keras

# Modules of the functions that layers, losses and metrics may name.
_FUNCTION_MODULES = ("builtins", "keras.activations", "keras.losses", "keras.metrics", "keras.ops")
_CLASSES = (
    keras.Layer,
    keras.Operation,
    keras.Loss,
    keras.Metric,
    keras.DTypePolicy,
    keras.Initializer,
    keras.Regularizer,
    keras.constraints.Constraint,
    keras.optimizers.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule,
    keras.random.SeedGenerator,
    keras.quantizers.Quantizer,
    # Not GPTQConfig and AWQConfig: they hold a data set and a tokenizer.
    keras.quantizers.Int8QuantizationConfig,
    keras.quantizers.Int4QuantizationConfig,
    keras.quantizers.Float8QuantizationConfig,
)
# Layers that run code of the config or of a SavedModel, and operations that call a function.
_RUN_CODE = {"Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"}
_RUN_CODE |= {"Map", "Scan", "AssociativeScan", "Switch", "WhileLoop", "ForiLoop", "Cond"}
_RUN_CODE |= {"VectorizedMap"}
# Values that are not objects. Left out are "__lambda__" and "__typespec__".
_VALUES = {"__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__"}
# Their tokenizers open the files that a config names.
_OTHER_LIBRARIES = ("keras_hub>", "keras_cv>", "keras_nlp>")


def find_code(config):
    """Return the name of the first object in a parsed config that can run code, or `None`.

    The name is untrusted: it may contain any characters.
    """
    registered = keras.saving.get_custom_objects()
    waiting = [(None, config)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, dict):
            if "class_name" in item and "config" in item and not _is_allowed(item, registered):
                name = item["config"] if item["class_name"] == "function" else item["class_name"]
                return f"{item.get('module')}.{name}"
            waiting += item.items()
        elif isinstance(item, list):
            waiting += [(None, value) for value in item]
        elif isinstance(item, str) and key != "registered_name" and item in registered:
            return item  # Keras replaces the string by the class
    return None


def _is_allowed(item, registered):
    """Return True if an object of a config cannot run code."""
    class_name, module = str(item["class_name"]), str(item.get("module"))
    if class_name == "function":
        return module in _FUNCTION_MODULES or item["config"] in registered
    registered_name = str(item.get("registered_name") or class_name)
    if registered_name in registered:
        return not registered_name.startswith(_OTHER_LIBRARIES)
    if class_name in _VALUES:
        return True
    if class_name in _RUN_CODE or not re.fullmatch(r"keras(\.\w+)*", module):
        return False
    try:
        found = vars(importlib.import_module(module)).get(class_name)
    except ImportError:
        return False
    return inspect.isclass(found) and issubclass(found, _CLASSES)
