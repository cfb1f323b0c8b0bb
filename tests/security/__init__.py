"""Tests of what strangers' files and requests may do, a file for each class of attack."""
