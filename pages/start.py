"""/: the curves part while nothing is pressed, and the six stops of the tour begin here."""

from kvviz.ui.frame.page import page
from kvviz.ui.live.component import recorded_view
from kvviz.ui.start.stops import documentation, stops, way_on

with page("start"):
    way_on()
    recorded_view()
    stops()
    documentation()
