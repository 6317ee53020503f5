"""Commands beside ``pulumi up``: results of a stack, pinned images, and the pages written from code."""

from slipway.interrupts import end_quietly as end_quietly  # A command's Ctrl-C is handled from here on.
