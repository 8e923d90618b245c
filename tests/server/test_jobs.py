"""Which jobs stay in memory, and how often the archive is asked for those that do not."""

import pytest

from kvviz.server.jobs import FINISHED_IN_MEMORY, RECALL_AGAIN_S, UNSAVED_IN_MEMORY, Job, Jobs


class FakeArchive:
    problem = ""

    def __init__(self):
        self.stored, self.saved, self.asked = {}, set(), []

    def has(self, job_id):
        return job_id in self.saved

    def recall(self, job_id):
        self.asked.append(job_id)
        return self.stored.get(job_id)


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def jobs(now):
    jobs = Jobs(lambda: now[0])
    jobs.archive = FakeArchive()
    return jobs


def test_the_archive_is_asked_now_and_then_for_what_it_does_not_have(jobs, now):
    for _ in range(3):
        assert jobs.get("one") is None and jobs.get("other") is None
    assert jobs.archive.asked == ["one", "other"]
    now[0] += RECALL_AGAIN_S
    assert jobs.get("one") is None and len(jobs.archive.asked) == 3
    jobs.archive.stored["one"] = Job("one", None, state="done")
    jobs.ask_archive_again()
    assert jobs.get("one") is jobs.get("one") is jobs.archive.stored["one"] and len(jobs.archive.asked) == 4


def test_recalled_jobs_are_held_for_a_while(jobs):
    ids = [str(number) for number in range(FINISHED_IN_MEMORY + 1)]
    jobs.archive.stored = {job_id: Job(job_id, None, state="done") for job_id in ids}
    for job_id in ids:
        jobs.get(job_id)
    jobs.get(ids[-1])
    assert jobs.archive.asked == ids
    jobs.get(ids[0])
    assert jobs.archive.asked == [*ids, ids[0]] and list(jobs) == []


@pytest.mark.parametrize(("saved", "left"), [(True, FINISHED_IN_MEMORY), (False, UNSAVED_IN_MEMORY)])
def test_finished_jobs_leave_memory_and_unsaved_ones_later(jobs, saved, left):
    jobs.add(Job("active", None))
    for number in range(UNSAVED_IN_MEMORY + 20):
        jobs.add(Job(str(number), None, state="done"))
        if saved:
            jobs.archive.saved.add(str(number))
    kept = [job.id for job in jobs]
    assert kept[0] == "active" and len(kept) <= left + 1 and kept[-1] == str(UNSAVED_IN_MEMORY + 19)
