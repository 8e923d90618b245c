"""Write kvviz/ui/assets/live/recording.json.gz: the run that the live page shows before anything has run there.

It is the run that the page's form asks for at first, measured here with its first look. Run `python -m tools.recording`
on a machine that does nothing else, after a change of the form's defaults, of the bundled models or of the records.
"""

import datetime
import gzip
import json

from kvviz.decoding.loaded_models import LoadedModels
from kvviz.device.cores import usable_cores
from kvviz.device.environment import set_threads
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import opening, rehearsal
from kvviz.models.sources import first_model
from kvviz.ui.folders import ASSETS

FILE = ASSETS / "live" / "recording.json.gz"


def main() -> None:
    """Measure, and write the records that a viewer's page replays."""
    set_threads(max(1, usable_cores() - 1))  # one core is the server's, as on the page
    models, first = LoadedModels(), rehearsal()
    list(perform(first, models.get(first), comparison_id="rehearsal", watched=True))
    work = opening(first_model())
    _, records = finished(list(perform(work, models.get(work), comparison_id="recording", watched=True)))
    made = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = json.dumps({"made": made, "records": [{**record} for record in records]}, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{FILE}: {len(records)} records, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
