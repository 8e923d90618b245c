"""Get a model's config.json from the Hugging Face Hub or from its local cache.

Imports huggingface_hub when called, and neither torch nor transformers. huggingface_hub itself honours HF_ENDPOINT,
HF_HUB_OFFLINE and the location of the cache.
"""

from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from kvviz.base.errors import KvvizError
from kvviz.models.sources import LARGEST_CONFIG, check_hub, read_config

INSTEAD = "paste the config.json instead"


def fetch_config(repo_id: str, timeout: float = 10) -> dict[str, object]:
    """Return a repository's config.json within `timeout` seconds; the cached one if the Hub can't be reached.

    Raises KvvizError with one sentence for an unknown id, no access, no network or an invalid file.
    """
    check_hub(repo_id)
    from huggingface_hub import errors

    try:
        path = _within(timeout, lambda: _downloaded(repo_id, timeout))
    except KvvizError:
        raise
    except errors.HFValidationError as error:
        raise KvvizError(f"{repo_id[:80]!r} is no Hugging Face id, which has the form owner/name") from error
    except Exception as error:
        cached = _cached(repo_id) if _unreachable(error) else None
        if cached is None:
            raise KvvizError(_why_not(repo_id, error)) from error
        path = cached
    try:
        return read_config(path)
    except KvvizError as error:
        raise KvvizError(str(error).replace(str(path), f"the config.json of {repo_id}")) from error


def _within(seconds: float, work: Callable[[], Path]) -> Path:
    """Return or raise what `work` does; TimeoutError if it takes longer, as a look-up of a host name can."""
    answers: SimpleQueue[Path | Exception] = SimpleQueue()

    def answer() -> None:
        try:
            answers.put(work())
        except Exception as error:
            answers.put(error)

    Thread(target=answer, daemon=True, name="hub-config").start()
    try:
        result = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
    if isinstance(result, Exception):
        raise result
    return result


def _downloaded(repo_id: str, timeout: float) -> Path:
    """Return the file in the local cache; fetch it if the Hub has a newer one, after a check of its size."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    size = get_hf_file_metadata(hf_hub_url(repo_id, "config.json"), timeout=timeout).size
    if size is None or size > LARGEST_CONFIG:
        stated = "of unknown size" if size is None else f"of {size:,} bytes"
        raise KvvizError(f"the config.json of {repo_id} is {stated}; kvviz reads at most {LARGEST_CONFIG:,} bytes")
    return Path(hf_hub_download(repo_id, "config.json", etag_timeout=timeout))


def _cached(repo_id: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo_id, "config.json")
    return Path(path) if isinstance(path, str) else None


def _unreachable(error: Exception) -> bool:
    """Whether no answer came; a refusal is an answer."""
    from huggingface_hub import errors

    return isinstance(error, errors.LocalEntryNotFoundError) or not isinstance(
        error, errors.HfHubHTTPError | errors.EntryNotFoundError
    )


def _why_not(repo_id: str, error: Exception) -> str:
    from huggingface_hub import errors

    if _unreachable(error):
        return f"{repo_id} is not in the local cache and the Hugging Face Hub can't be reached from here; {INSTEAD}"
    if isinstance(error, errors.GatedRepoError):
        return f"{repo_id} is gated: log in with `hf auth login` to an account that has access, or {INSTEAD}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the Hugging Face Hub shows no model {repo_id}: check the id, log in if it is private, or {INSTEAD}"
    if isinstance(error, errors.EntryNotFoundError):
        return f"{repo_id} has no config.json on the Hugging Face Hub; {INSTEAD}"
    return f"the Hugging Face Hub did not give the config.json of {repo_id} ({type(error).__name__}); {INSTEAD}"
