"""What a line of the log says, and what it can't."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.logs import read_choice

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "read"),
    [("", ("", "info")), ("json", ("json", "info")), ("debug", ("", "debug")), (" TEXT, error ", ("text", "error"))],
)
def test_a_form_a_level_or_both(text, read):
    assert read_choice(text) == read


def test_what_is_neither_is_refused():
    with pytest.raises(KvvizError, match="json or text, and debug, info, warning, error"):
        read_choice("xml")


def lines(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", f"import logging\nfrom kvviz.base.logs import event, set_up\nset_up('server')\n{code}"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    return done.stderr.splitlines()


def test_numbers_are_filled_into_a_librarys_sentence_and_nothing_else():
    code = "log = logging.getLogger('lib.part')\nlog.error('%s of %d\\nand more', 'secret', 7)\n"
    code += "log.error('100 %')\nlog.error(ValueError('secret'))\nlog.info('not shown')\nlog.error('%d', 'secret')"
    told = [json.loads(line) for line in lines(code)]
    assert [line["event"] for line in told] == ["… of 7", "100 %", "ValueError", "%d"]
    assert {line["library"] for line in told} == {"lib"}


def test_an_event_has_its_fields_and_its_level():
    code = "log = logging.getLogger('kvviz.x')\nevent(log, 'a', id='b', seconds=1.5)\nevent(log, 'c', logging.DEBUG)"
    (told,) = [json.loads(line) for line in lines(code)]
    assert (told["level"], told["process"], told["event"], told["id"], told["seconds"]) == (
        "info", "server", "a", "b", 1.5
    )  # fmt: skip
    assert told["time"].endswith("Z")
    assert len(lines(code, KVVIZ_LOG="debug")) == 2
    assert lines(code, KVVIZ_LOG="text,info")[0].endswith(" info server a id=b seconds=1.5")


def test_an_uncaught_exception_is_one_line_without_its_message():
    (line,) = lines("raise ValueError('secret')")
    told = json.loads(line)
    assert (told["level"], told["event"], told["error"]) == ("error", "uncaught", "ValueError")
    assert "secret" not in line


def test_this_process_logs_as_ever():
    assert logging.getLogRecordFactory() is logging.LogRecord


@pytest.mark.slow
@pytest.mark.worker
@pytest.mark.parametrize(
    ("variable", "value", "says"), [("KVVIZ_LOG", "xml", "json or text"), ("KVVIZ_MODELS", "/nowhere", "kvviz pull")]
)
def test_a_server_that_is_set_up_wrongly_says_so_in_one_line_and_does_not_start(tmp_path, variable, value, says):
    environment = {**os.environ, "KVVIZ_HOME": str(tmp_path), variable: value}
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and says in done.stderr
