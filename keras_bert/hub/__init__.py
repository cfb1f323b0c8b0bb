"""Models by name: where they are, downloads, conversion, loading and saving."""
