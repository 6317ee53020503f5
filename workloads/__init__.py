"""Pipelines: each a folder with a `pipeline.yaml` and plain programs."""
