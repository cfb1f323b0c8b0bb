"""Models as SavedModels for TensorFlow Serving."""
