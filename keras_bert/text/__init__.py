"""Strings to ids: tokenizers in Python and as a TensorFlow graph, and the preprocessing layer."""
