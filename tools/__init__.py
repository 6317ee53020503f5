"""Commands beside ``pulumi up``: results of a stack, pinned images, and the pages written from code."""
