"""What a race is said to have shown holds for all of its steps, and of all designs that did alike."""

from kvviz.experiments.cache_designs.words import sentences

KEPT = [10 * 1024, 20 * 1024, 30 * 1024]


def run(mode, title, allocated, copied, gathered=0):
    account = {"copied": [copied] * 3, "gathered": [gathered] * 3}
    quality = {"kl": [0.0], "perplexity": 2.0}
    return {
        **{"mode": mode, "title": title, "exact": True, "identical": True, "step_s": [1.0] * 3, "books": account},
        **{"cache_bytes": KEPT, "allocated_bytes": allocated, "quality": quality},
    }


def said(*runs):
    return sentences({"runs": [run("cached", "KV cache", KEPT, 9), *runs]})[1:]


def test_waste_is_that_of_all_steps_and_not_of_the_last():
    reserved = run("prealloc", "Reserved at once", [31 * 1024] * 3, 10)
    paged = run("paged", "Paged", [14 * 1024, 24 * 1024, 34 * 1024], 10, 20 * 1024)
    assert said(reserved, paged)[-1] == (
        "Over the whole run, “Reserved at once” wastes most, 11.0 KiB on average and 21.0 KiB at most."
    )


def test_designs_that_move_alike_are_named_together():
    eight, four = (run(name, title, KEPT, 512, 4096) for name, title in (("int8", "8 bits"), ("int4", "4 bits")))
    found = said(eight, four, run("prealloc", "Reserved at once", KEPT, 512))
    assert found == ["At the last step, “8 bits” and “4 bits” move most, 4.5 KiB; “Reserved at once” least, 512 B."]
