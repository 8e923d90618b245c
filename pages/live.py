"""/live: a real model decodes without and with its cache, and everyone watches."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.frame.tour import opens
from kvviz.ui.live import browser
from kvviz.ui.live.component import known_over, live_view, open_recording
from kvviz.ui.live.form import BROWSER, choose, in_words, live_form
from kvviz.ui.shared import verdict
from kvviz.ui.shared.devices import show_queue
from kvviz.ui.shared.experiment import run_or_stop
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.stop_and_think import of_live, think

with page("live"):
    form = live_form()
    comparison = form.address.named("comparison", form.came)
    over = known_over(scheduler(), comparison)

    choice, place = choose(form, scheduler(), lambda: open_recording(scheduler(), form.address))
    with place:
        if form["on"] == BROWSER:
            browser.run_or_stop(choice.work)
        else:
            comparison = run_or_stop(scheduler(), choice.work, comparison, form.address, "comparison", key=choice.key)
            show_queue(scheduler())
    if choice.problem:
        st.warning(plain(choice.problem))
    if why := (scheduler().device or {}).get("why"):
        st.info(plain(why))
    takes = "" if choice.seconds is None else f"A run takes {in_words(choice.seconds)} here"
    asked = browser.order(form["on"] == BROWSER)
    tokens = form["new_tokens"] if choice.work else None
    everyone = browser.for_a_class(choice.work)
    asks = {"everyone": everyone, "predicts": opens("prediction"), "order": asked}
    told = live_view(comparison, over=over, takes=takes, new_tokens=tokens, **asks)
    browser.take_in(scheduler(), told, form.address)
    if said := browser.agreement(scheduler(), comparison):
        st.caption(said)
    verdict.of_live(scheduler(), comparison)
    think("live", of_live(scheduler(), comparison))
