"""Look inside a model: attention weights, and the words that a prediction depends on."""

from keras_bert.inspect.attention_weights import Attention, attention
from keras_bert.inspect.integrated_gradients import Attributions, attributions

__all__ = ["Attention", "Attributions", "attention", "attributions"]
