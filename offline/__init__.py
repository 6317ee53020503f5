"""What evaluates the program without a cloud: engine, rehearsal, preview, policies and picture."""
