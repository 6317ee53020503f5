"""What the stacks of a revision declare, printed in a numbered format for a preview to compare."""
