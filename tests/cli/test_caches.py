"""`kvviz new-cache` and `kvviz check-cache`: a file to start from, and what it still lacks."""

import json

import pytest


@pytest.mark.slow
def test_a_new_cache_is_written_and_checked(kvviz, tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_DESIGNS", str(tmp_path))
    made = kvviz("new-cache", "mine")
    assert made.out.split() == [str(tmp_path / "mine.py")]
    done = kvviz("check-cache", made.out.strip(), "--json")
    document = json.loads(done.out)
    assert (done.status, done.err, document["ok"], document["exact"]) == (2, "", False, True)
    assert [found["ok"] for found in document["checks"]] == [True, False, *[None] * 7]
    assert all(found.keys() == {"name", "ok", "says"} for found in document["checks"])
    solved = kvviz("new-cache", "solved", "--exercise", "take-back", "--solution", "-o", str(tmp_path)).out.strip()
    done = kvviz("check-cache", solved)
    assert done.status == 0 and "✗" not in done.out and "It meets the contract" in done.out


def test_what_can_not_be_written_or_checked_is_one_sentence(refused, kvviz, tmp_path):
    folder, file = ("-o", str(tmp_path)), tmp_path / "mine.py"
    kvviz("new-cache", "mine", *folder)
    refused("there is a file", "new-cache", "mine", *folder)
    refused("there is a mode called paged already", "new-cache", "paged", *folder)
    refused("a design's name is '../x'", "new-cache", "../x", *folder)
    refused("no exercise 'ring'; the exercises are reserve, paged, ", "new-cache", "x", "--exercise", "ring", *folder)
    refused("there is no folder", "new-cache", "x", "-o", str(tmp_path / "nowhere"))
    refused("nowhere.py can't be read (FileNotFoundError)", "check-cache", str(tmp_path / "nowhere.py"))
    file.write_text("class A(:")
    refused("mine.py is no Python yet: line 1, ", "check-cache", str(file), "--json")
    file.write_text("import nothing_like_it\nclass A: pass")
    refused("line 1 of mine.py: ModuleNotFoundError", "check-cache", str(file))
    file.write_text("from kvviz.caches.concat import Concat\nclass A(Concat):\n    exercise = 'none'")
    refused("exercise is 'none' in mine.py", "check-cache", str(file))
