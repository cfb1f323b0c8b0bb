"""Limits and checks for files of unknown authors: archives, HDF5, pickles, indexes, configs."""
