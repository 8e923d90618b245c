"""What was read of a config is kept, and a config that is another one is read."""

import pytest

from kvviz.base.errors import ConfigError
from kvviz.models.read_lately import SHORT, kept_lately


def test_the_same_config_is_read_once():
    read = []

    @kept_lately
    def layers(config, name, source):
        read.append((config, name, source))
        if not config.get("layers", 1):
            raise ConfigError("layers must be at least 1")
        return config.get("layers")

    for config, named in (({"layers": 2}, ""), ({"layers": 3}, ""), ({"layers": 2}, "mine")):
        assert [layers(config, name=named), layers(dict(config), name=named)] == [config["layers"]] * 2
    assert [(config["layers"], name) for config, name, _ in read] == [(2, ""), (3, ""), (2, "mine")]
    read.clear()
    for _ in range(2):  # nothing is kept of what can't be read, is no JSON, or is long
        with pytest.raises(ConfigError, match="at least 1"):
            layers({"layers": 0})
        assert layers({"layers": 1, "of": {1}}) == layers({"layers": 1, "of": "x" * SHORT}) == 1
    assert len(read) == 6
