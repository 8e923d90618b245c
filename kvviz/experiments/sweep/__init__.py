"""A comparison over a grid of models, lengths, batches and precisions.

A cell of the grid is a comparison; its modes are measured together. On its first visit a cell passes the equivalence
check, and every visit adds one timed pass of each mode. Rounds visit every cell once, in alternating order (A B C, C B
A, ...), and the modes of a cell alternate too, so that drift hits all alike. Models that do not fit the memory together
are measured one after the other. A visit begins with an untimed prefill and step, because other cells have had the
processor's caches meanwhile. Each pass has to choose the tokens of the check again; the record holds a digest of them,
so a resumed sweep needs no second check.

Time is estimated from the device's measured rates and corrected by every pass. A budget first takes repeats away, then
the dearest cells, before anything starts; while it runs, no visit begins that would end after it. A cell that fails is
noted with its sentence and the sweep goes on. Everything but the seconds follows from the records, so the journal of a
killed sweep is enough to continue it.
"""
