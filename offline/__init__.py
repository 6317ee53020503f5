"""What evaluates the program without a cloud: engine, rehearsal, preview, policies and picture."""

import sys

# What `python -m` has here while it imports the packages of a command: only a command's process is changed.
if sys.argv[:1] == ["-m"]:
    from offline.interrupts import end_quietly

    end_quietly()
