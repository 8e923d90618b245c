"""How many examples hypothesis draws: a few in the edit loop, more in `make test`, many in `make test-long`."""

import os

from hypothesis import HealthCheck, settings

FACTORS = {"quick": 0.2, "": 1.0, "long": 10.0}


def draws(count, **options):
    """Settings for about `count` examples in an ordinary run, scaled by KVVIZ_DRAWS (quick, long)."""
    scaled = max(5, round(count * FACTORS[os.environ.get("KVVIZ_DRAWS", "")]))
    return settings(max_examples=scaled, deadline=None, suppress_health_check=[HealthCheck.too_slow], **options)
