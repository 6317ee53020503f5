"""What evaluates the program without a cloud: engine, rehearsal, preview, policies and picture."""

import sys

# While `python -m` imports the packages of a command, `sys.argv[0]` is `-m`: only the process of a command is
# changed.
if sys.argv[:1] == ["-m"]:
    from offline.interrupts import end_quietly

    end_quietly()
