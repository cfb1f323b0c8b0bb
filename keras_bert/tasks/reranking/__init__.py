"""Reranking: the order of documents for a query, by a model that reads both."""
