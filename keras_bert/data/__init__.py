"""Training data: examples, readers of file formats, batches and packed sequences."""
