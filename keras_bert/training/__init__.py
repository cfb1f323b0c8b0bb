"""Training: the engine around Keras' `fit`, fine-tuning, state, report, hyperparameter search."""
