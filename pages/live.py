"""/live: a real model decodes without and with its cache, and everyone watches."""

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.live.component import known_over, live_view, open_recording
from kvviz.ui.live.form import choose, live_form, say_what_it_takes
from kvviz.ui.shared import verdict
from kvviz.ui.shared.experiment import run_or_stop
from kvviz.ui.shared.stop_and_think import of_live, think

with page("live"):
    form = live_form()
    came = form.address.arrived()
    form.take_over(came)
    comparison = form.address.named("comparison", came)
    over = known_over(scheduler(), comparison)

    choice = choose(form, scheduler())
    beside = run_or_stop(scheduler(), choice.work, comparison, form.address, "comparison")
    say_what_it_takes(beside, choice)
    live_view(comparison, over=over, new_tokens=form["new_tokens"] if choice.work else None)
    verdict.of_live(scheduler(), comparison)
    open_recording(scheduler(), form.address)
    think("live", of_live(scheduler(), comparison))
