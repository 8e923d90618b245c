"""/quiz: twelve questions whose answers are checked at once, before a lesson and after it."""

from kvviz.ui.frame.page import page
from kvviz.ui.quiz.course import course

with page("quiz"):
    course()
