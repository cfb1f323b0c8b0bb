"""Embeddings: training data, head, losses, metrics, pipeline, search."""
