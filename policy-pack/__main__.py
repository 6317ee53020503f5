"""What the Pulumi CLI starts for ``--policy-pack policy-pack``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slipway.offline.policies.crossguard import pack

pack()
