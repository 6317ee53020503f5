"""``make new``: writes the folder of a pipeline, or the file of a stack, that can be rehearsed at once."""
