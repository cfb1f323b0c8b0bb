"""Sparse embeddings: a weight for each token of the vocabulary, for search by terms."""
