"""Like values have one hash, whatever their order; any config has one."""

import math

from kvviz.base.hashing import canonical, config_hash, digest
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
