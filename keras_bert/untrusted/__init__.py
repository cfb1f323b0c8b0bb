"""Limits and checks for files of strangers: archives, links, HDF5, pickles, graphs, configs."""
