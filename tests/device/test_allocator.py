"""What the allocator's account says of a call that allocates, releases and begins its peak again."""

import torch

from kvviz.device.allocator import begin_peak, kept_by

KIB = 256  # float32 numbers


def test_the_peak_is_that_of_what_follows_its_last_beginning():
    def grow():
        held = torch.empty(100 * KIB)
        torch.empty(1000 * KIB)  # is released at once, and belongs to what came before
        begin_peak("cpu")
        larger = torch.empty(110 * KIB)  # as a cache's torch.cat: the new one is there before the old one goes
        del held
        torch.empty(60 * KIB)
        return larger

    account = kept_by(grow, "cpu")
    assert (account.kept, account.peak) == (110 * 1024, 210 * 1024)


def test_a_peak_that_nothing_begins_again_is_that_of_the_whole_call():
    def grow():
        torch.empty(1000 * KIB)
        return torch.empty(100 * KIB)

    account = kept_by(grow, "cpu")
    assert (account.kept, account.peak) == (100 * 1024, 1000 * 1024)
