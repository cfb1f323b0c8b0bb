"""Fine-tuning: the run, its schedule, its state, its report, and hyperparameter search."""
