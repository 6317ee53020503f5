"""Commands beside ``pulumi up``: results of a stack, pinned images, and the pages written from code."""

import offline as offline  # A command's Ctrl-C is handled from here on.
