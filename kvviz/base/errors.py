"""The errors that reach a user: one sentence that can be acted on."""


class KvvizError(Exception):
    """Something the user asked for can't be done; the message is one sentence saying what would be right."""


class ConfigError(KvvizError):
    """A model config that can't be read; the sentence names the field."""


class Stopped(Exception):
    """The viewer asked to stop."""


def in_a_line(error: BaseException) -> str:
    """Name an error of foreign code by its type and the first line of what it says."""
    first = str(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
