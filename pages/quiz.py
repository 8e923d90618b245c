"""/quiz: twelve questions, each with Check and the figure that proves its answer, before a lesson and after it."""

from kvviz.ui.frame.page import page
from kvviz.ui.quiz.course import course

with page("quiz"):
    course()
