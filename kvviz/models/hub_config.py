"""Get a model's config.json from the Hugging Face Hub or from its local cache.

huggingface_hub, imported when called, itself honours HF_ENDPOINT, HF_HUB_OFFLINE and the location of the cache.
"""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TypeVar

from kvviz.base.errors import KvvizError
from kvviz.models.sources import LARGEST_CONFIG, check_hub, read_config

T = TypeVar("T")


def fetch_config(repo_id: str, timeout: float = 10) -> dict[str, object]:
    """Return a repository's config.json within `timeout` seconds; the cached one if the Hub can't be reached.

    Raises KvvizError with one sentence for an unknown id, no access, no network or an invalid file.
    """
    check_hub(repo_id)
    from huggingface_hub import try_to_load_from_cache

    try:
        path = within(timeout, lambda: _downloaded(repo_id, timeout))
    except KvvizError:
        raise
    except Exception as error:
        if why := refusal(repo_id, error, "config.json"):
            raise KvvizError(f"{why}; paste the config.json, or name a GGUF file (owner/name/file.gguf)") from error
        cached = try_to_load_from_cache(repo_id, "config.json")
        if not isinstance(cached, str):
            raise KvvizError(
                f"{repo_id} is not in the local cache and the Hugging Face Hub can't be reached from here; paste the "
                "config.json instead"
            ) from error
        path = Path(cached)
    try:
        return read_config(path)
    except KvvizError as error:
        raise KvvizError(str(error).replace(str(path), f"the config.json of {repo_id}")) from error


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return or raise what `work` does; TimeoutError if it takes longer, as a look-up of a host name can."""
    found: Future[T] = Future()

    def answer() -> None:
        try:
            found.set_result(work())
        except Exception as error:
            found.set_exception(error)

    Thread(target=answer, daemon=True, name="hub-config").start()
    return found.result(timeout=seconds)


def _downloaded(repo_id: str, timeout: float) -> Path:
    """Return the file in the local cache; fetch it if the Hub has a newer one, after a check of its size."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    size = get_hf_file_metadata(hf_hub_url(repo_id, "config.json"), timeout=timeout).size
    if size is None or size > LARGEST_CONFIG:
        stated = "of unknown size" if size is None else f"of {size:,} bytes"
        raise KvvizError(f"the config.json of {repo_id} is {stated}; kvviz reads at most {LARGEST_CONFIG:,} bytes")
    return Path(hf_hub_download(repo_id, "config.json", etag_timeout=timeout))


def refusal(repo_id: str, error: Exception, file: str = "a file") -> str:
    """Why the Hugging Face Hub refused a repository or a file of it; empty if no answer came."""
    from huggingface_hub import errors

    hub, name = "the Hugging Face Hub", type(error).__name__
    login = "ask for access on its page, then log in with `hf auth login` or set HF_TOKEN"
    rows = (
        (errors.HFValidationError, f"{repo_id[:80]!r} is no Hugging Face id, which has the form owner/name"),
        (errors.GatedRepoError, f"{repo_id} is gated: {login}"),
        (errors.RepositoryNotFoundError, f"{hub} shows no model {repo_id}: check the id, or log in if it is private"),
        (errors.LocalEntryNotFoundError, ""),
        (errors.EntryNotFoundError, f"{file} of {repo_id} is not on {hub}"),
        (errors.HfHubHTTPError, f"{hub} did not give {repo_id} ({name}); try again"),
    )
    return next((sentence for kind, sentence in rows if isinstance(error, kind)), "")
