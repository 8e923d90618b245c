"""/compare: runs that were kept, laid over one another."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.compare.elsewhere import same_elsewhere
from kvviz.ui.compare.form import compare_form, picked, search
from kvviz.ui.compare.inbox import watched_folder
from kvviz.ui.compare.manage import manage, undo
from kvviz.ui.compare.recordings import recordings
from kvviz.ui.compare.results import overlaid
from kvviz.ui.compare.share import share
from kvviz.ui.frame.page import page
from kvviz.ui.shared import verdict
from kvviz.ui.shared.stop_and_think import of_runs, think

with page("compare"):
    form = compare_form()
    runs = picked(form)
    if runs:
        overlaid(runs)
    else:
        recordings()
    search(form)
    undo(form)
    if runs:
        verdict.of_runs(runs)
    same_elsewhere(form, runs, scheduler())
    watched_folder(form)
    manage(form, runs)
    share(form, runs)
    think("compare", of_runs(runs))
