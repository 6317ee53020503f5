"""What is missing before the first `pulumi up` of a stack, and the command that mends it."""
