"""Devices and strategies, terminal output, atomic files and locks."""
