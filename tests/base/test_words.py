"""Quantities in words, above all where rounding meets the next unit."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kvviz
from kvviz.base.words import brief, human, in_one_unit, lasting, millis, ordinal, ratio, small, two_digits


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1023.7, "1.0 KiB"),
        (28672, "28.0 KiB"),
        (1_048_524, "1023.9 KiB"),
        (1_048_575, "1.0 MiB"),
        (2**30 - 1, "1.0 GiB"),
        (2**40 - 1, "1.00 TiB"),
        (-1536, "-1.5 KiB"),
        (2.25 * 2**30, "2.3 GiB"),
        (12.25 * 2**10, "12.3 KiB"),
        (-2.25 * 2**20, "-2.3 MiB"),
    ],
)
def test_bytes(size, words):
    assert human(size) == words


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the pages' script")
def test_the_pages_scripts_write_bytes_and_durations_alike():
    sizes = [*(k * 2**power // 8 for k in range(1, 99) for power in (10, 20, 30, 40)), 1_048_524, 1_048_575, 2**40 - 1]
    spans = [k / 8 for k in range(8, 99)] + [k * 7.5 for k in range(99)]
    spans = [seconds for seconds in spans if seconds >= 1]  # a script writes shorter ones in milliseconds
    file = (Path(kvviz.__file__).parent / "ui" / "assets" / "shared" / "format.js").as_uri()
    script = f"""import {{ bytes, duration }} from "{file}"
        console.log(JSON.stringify([{sizes}.map(bytes), {spans}.map(duration)]))"""
    command = ["node", "--input-type=module", "-e", script]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert found == [[human(size) for size in sizes], [lasting(seconds) for seconds in spans]]


def test_sizes_on_pages_are_in_powers_of_1024():
    """Rates (GB/s) are in powers of 1000; sizes too only beside both names of the powers, on the page Cost."""
    home = Path(kvviz.__file__).parent
    own = [path for part in ("ui", "charts", "experiments") for path in (home / part).rglob("*")]
    texts = {
        path: path.read_text() for path in own if path.suffix in (".py", ".toml", ".js") and "vendor" not in path.parts
    }
    other = re.compile(r"[\d}] ?[kMGT]B\b(?!/s)|figure_of\([^()]*['\"]B['\"]\)")
    found = {path.relative_to(home).as_posix() for path, text in texts.items() if other.search(text)}
    assert found == {"ui/cost/results.py"} and "(powers of 1000)" in texts[home / "ui" / "cost" / "results.py"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0.4 s"),
        (9.96, "10 s"),
        (25, "25 s"),
        (90, "1.5 min"),
        (599.9, "10 min"),
        (9000, "2.5 h"),
        (35_999, "10 h"),
    ],
)
def test_durations(seconds, words):
    assert lasting(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0000312, "0.0312 ms"), (0.0321, "32.1 ms"), (0.9994, "999 ms"), (0.9996, "1,000 ms"), (12.3456, "12,346 ms")],
)
def test_milliseconds(seconds, words):
    assert millis(seconds) == words


def test_milliseconds_of_one_run():
    assert [millis(s, 2) for s in (0.0516, 0.9964, 1.1294)] == ["52 ms", "1,000 ms", "1,129 ms"]


def test_ordinals():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 21, 112)] == ["1st", "2nd", "3rd", "4th", "11th", "21st", "112th"]


def test_a_figure_in_a_sentence_has_three_digits_and_the_unit_that_suits_it():
    assert [brief(s) for s in (0.001234, 0.9, 1.234, 123.4)] == ["1.23 ms", "900 ms", "1.23 s", "123 s"]


def test_two_digits():
    assert [two_digits(n) for n in (62.87, 7.04, 0.316, 1234, 10, 0)] == ["63", "7", "0.32", "1,200", "10", "0"]


def test_sizes_that_stand_beside_one_another_have_one_unit_unless_one_is_far_smaller():
    assert in_one_unit([2**30, 2**32, 575_668_224]) == ["1.0 GiB", "4.0 GiB", "0.54 GiB"]
    assert in_one_unit([2**30, 2**20]) == ["1.0 GiB", "1.0 MiB"]


def test_a_ratio_has_two_digits_or_all_before_the_point():
    assert [ratio(value) for value in (0.104, 1, 4.49, 9.97, 19.54, 1234.5)] == [
        *("0.1", "1.0", "4.5", "10", "20", "1,234"),
    ]


def test_a_small_number_has_two_digits_and_a_power_of_ten_below_a_thousandth():
    found = [small(n) for n in (0.0371, 0.001, 1.84e-5, -5.2e-08, 0, 2.5e-12)]
    assert found == ["0.037", "0.001", "1.8 × 10⁻⁵", "-5.2 × 10⁻⁸", "0", "2.5 × 10⁻¹²"]
