"""Has each worker of the browser tests keep the first figures of the device, as a test's own process does.

Python runs this at the start of every process that has this folder in its PYTHONPATH.
"""

import sys

if "kvviz.worker" in sys.orig_argv:
    from kvviz.device import cores

    pin = cores.pin

    def pin_first(found):
        """Patch what imports torch only once the cores are pinned, because torch counts those that are left."""
        pin(found)
        from tests.figures import keep_the_first

        keep_the_first(setattr)

    cores.pin = pin_first
