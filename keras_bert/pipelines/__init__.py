"""Pipelines: a model of any task as a function from strings to plain results."""
