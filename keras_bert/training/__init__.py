"""Fine-tuning: training loop, batch schedule, resumable state, report and hyperparameter search."""
