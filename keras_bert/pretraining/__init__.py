"""Pretraining from raw text: corpus, vocabulary, records, stream of batches, training."""
