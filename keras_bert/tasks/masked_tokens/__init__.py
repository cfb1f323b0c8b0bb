"""Prediction of masked tokens, and the heads of pretraining."""
