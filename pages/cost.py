"""/cost: what a step costs with the cache and without it, counted in whole, and by the shorthand T d²."""

from kvviz.ui.cost.form import ask
from kvviz.ui.cost.results import draw
from kvviz.ui.frame.page import page

with page("cost"):
    draw(ask())
