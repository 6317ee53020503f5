"""What a review costs before it says anything."""

import subprocess
import sys

import pytest

from tests.support.checkout import ROOT

PROGRAM = """
import sys
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.kubernetes.review import REVIEW
reviews = [REVIEW, *(cloud.review() for cloud in CLOUDS.values())]
print(*sorted({name.partition(".")[0] for name in sys.modules if name.startswith("pulumi")}))
"""


@pytest.mark.slow
def test_the_reviews_of_all_clouds_import_no_sdk() -> None:
    """Each takes longer to import than a review takes."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
