"""The errors that reach a user: one sentence that can be acted on."""


class KvvizError(Exception):
    """Something the user asked for can't be done; the message is one sentence saying what would be right."""


class ConfigError(KvvizError):
    """A model config that can't be read; the sentence names the field."""


class Stopped(Exception):
    """The viewer asked to stop."""
