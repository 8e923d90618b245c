"""The two ways kvviz says no: one sentence a user can act on."""


class KvvizError(Exception):
    """Something the user asked for can't be done; the message is one sentence saying what would be right."""


class ConfigError(KvvizError):
    """A model config that can't be read; the sentence names the field."""


class Stopped(Exception):
    """The viewer asked to stop."""
