"""Settings of a stack: its shape, its checks, and the one error that lists everything wrong with it.

Empty on purpose: a cloud's own settings are built on `infra.schema.base`, and `infra.settings.model` on them.
"""
