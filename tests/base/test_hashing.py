"""Like values have one hash, whatever their order; any config has one."""

import json
import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.hashing import canonical, config_hash, data_digest, digest
from kvviz.models.catalog.rows import models


def test_order_and_spaces_do_not_matter():
    assert canonical({"b": [1, 2.5], "a": "é"}) == '{"a":"\\u00e9","b":[1,2.5]}'
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    assert len(digest({})) == 64


def test_every_config_has_a_hash():
    odd = {"time_step_limit": (0.0, math.inf), "id2label": {0: "A", "x": "B"}, "dtype": complex(1, 2)}
    assert config_hash(odd) == config_hash({**odd, "time_step_limit": [0.0, math.inf]})
    assert config_hash({"id2label": {0: "A"}}) == config_hash({"id2label": {"0": "A"}}), "as a config.json has it"


def test_models_of_the_catalog_differ():
    hashes = {config_hash(row.config) for row in models().values()}
    configs = {canonical(row.config) for row in models().values()}
    assert len(hashes) == len(configs)


@dataclass(frozen=True)
class Held:
    """Data as a chart takes it."""

    name: str
    numbers: object


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
DATA = st.recursive(
    SCALARS | st.lists(st.floats(allow_nan=False), max_size=3) | st.lists(st.integers(), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
        | st.builds(Held, st.text(max_size=2), inner)
    ),
)


@given(DATA, DATA)
def test_data_has_one_digest_if_python_writes_it_alike(one, other):
    assert (data_digest(one) == data_digest(other)) == (repr(one) == repr(other))


def test_a_copy_of_data_has_its_digest():
    data = {"step_s": [0.5, 0.25], "cache_bytes": [2**70, 1], "rows": [{"mode": "cached", "exact": True, "at": None}]}
    assert data_digest(data) == data_digest(json.loads(json.dumps(data)))


def test_data_of_other_types_places_or_sizes_has_another_digest():
    apart = [[1, 0], [1.0, 0.0], [True, False], ["1", "0"], (1, 0), [[1], 0], [1, [0]], [[1, 0]], {1: 0}, [0, 1], [1]]
    apart += [[1, 0, 0], [-0.0, 1.0], [0.0, 1.0], [2**64, 0], "[1, 0]", Held("1", 0), Held("", [1, 0]), [None, 0]]
    assert len({data_digest(each) for each in apart}) == len(apart)
