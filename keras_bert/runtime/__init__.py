"""Devices and strategies, terminal output, and files: what every other module may use."""
