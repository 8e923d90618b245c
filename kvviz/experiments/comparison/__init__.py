"""One prompt through several modes on the same work: equivalence check, timed passes, verdict.

The first warm-up pass is the **equivalence check**: all modes step in lockstep. Tokens, text, layer states and identity
come from it. Its steps are clocked, so that somebody who watches has a **first look** at the curves, but no figure is
made of them. It looks for end tokens and stop texts, so the timed passes repeat a known number of steps and never make
the device wait for a token. A second decode, untimed, traces a sample of the steps and counts what outlives them: the
first ones, some spread, and the last (`kvviz.decoding.requirements.traced_steps`). Next comes the **allocator's
account**: a prefill of all but the last token and one decode step stand for the run, because torch's profiler keeps
every event. Then the **timed passes**, mode by mode in alternating order (A B, B A, ...), garbage collection paused,
threads fixed and recorded. They yield nothing but seconds, sent at most ten times a second, so that the instruments
stay under a few per cent of the smallest model's step (`bench/overhead.py`). Each timed pass has to choose the tokens
of the check again, else the run is marked as not repeatable.

Before the timed passes the curves are **predicted** and sent, so that no prediction knows a timed step: before the
check, too, unless somebody watches and the device's paces have yet to be measured, which would delay the first look.
"""
