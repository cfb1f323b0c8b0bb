"""Export to SavedModels for TF-Hub and TensorFlow Serving; SavedModels as layers."""
