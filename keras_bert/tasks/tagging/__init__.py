"""Tagging: one label for each word of a sentence."""
