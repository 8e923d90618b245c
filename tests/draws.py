"""How many examples hypothesis draws: a few in the edit loop, more in `make test`, many in `make test-long`."""

import os

from hypothesis import HealthCheck, settings

FACTORS = {"quick": 0.2, "": 1.0, "long": 10.0}
CHOSEN = os.environ.get("KVVIZ_DRAWS", "")
ORDINARY = CHOSEN != "long"  # then what takes long to draw may draw the same every time


def draws(count, **options):
    """Settings for about `count` examples in `make test`, fewer or more as KVVIZ_DRAWS says (quick, long)."""
    scaled = max(5, round(count * FACTORS[CHOSEN]))
    return settings(max_examples=scaled, deadline=None, suppress_health_check=list(HealthCheck), **options)
