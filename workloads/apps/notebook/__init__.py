"""The notebook of a pipeline: JupyterLab beside the store, and what its notebooks use."""
