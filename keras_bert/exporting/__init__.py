"""SavedModels: signatures, the TF-Hub pair, files for TF Serving, and SavedModels as layers."""
