"""Programs that a rehearsal runs in place of those that no package index has."""
