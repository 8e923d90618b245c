"""/lesson: for the teacher: plans with their times, the questions with answers, what goes wrong, a handout."""

from kvviz.ui.frame.page import page
from kvviz.ui.lesson.plans import lesson

with page("lesson"):
    lesson()
