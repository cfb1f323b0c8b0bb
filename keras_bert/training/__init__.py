"""Fine-tuning: training loop, batches, resumable state, report and hyperparameter search."""
