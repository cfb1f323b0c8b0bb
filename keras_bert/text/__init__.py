"""Strings to ids: the exact tokenizer as a TensorFlow graph, and the preprocessing layer."""
