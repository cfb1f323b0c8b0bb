"""Models by name: registry, downloads, cache, conversion, loading and saving."""
