"""The local server, which speaks the REST protocol of TF Serving."""
