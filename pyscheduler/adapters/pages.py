"""One list of the API server, read in pages that are neither too large nor too slow."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from pyscheduler.adapters.api import ApiServer, Nonsense, TooMuch
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.lists import Page

__all__ = ["PAGE", "Pages"]

# Objects of the first page, and of any.
PAGE: Final = 500
# Bytes that a page should have: what it costs here to hold and to parse one is some ten times as much.
PAGE_BYTES: Final = 4 << 20
# How often a page is asked for, and the seconds between, which double. To begin anew would cost all pages before it.
TRIES: Final = 3
PAUSE_S: Final = 0.2

# The API server says before all objects where the list goes on. Where it does not stand there, a page is read before the
# next is asked for.
_HEAD: Final = 4096
_TOKEN: Final = re.compile(rb'"continue": ?"([A-Za-z0-9+/=_.-]+)"')

T = TypeVar("T")


class Pages(Generic[T]):
    """Reads the list of one path, any number of times. One caller at a time."""

    def __init__(
        self,
        api: ApiServer,
        path: str,
        selector: dict[str, str],
        read_page: Callable[[bytes], Page[T]],
        stopped: threading.Event,
    ) -> None:
        self._api = api
        self._path = path
        self._selector = selector
        self._read_page = read_page
        self._stopped = stopped
        self._limit = PAGE

    def read(self) -> Iterator[Page[T]]:
        """Yield the pages. The next is fetched while one is read.

        Raises
        ------
        KubernetesError
            If a page cannot be had, or not be read.
        Gone
            If the list is too old to be read to its end.

        """
        # A list that had large pages may have none now.
        self._limit = min(PAGE, 2 * self._limit)
        with ThreadPoolExecutor(1, thread_name_prefix="page") as reading:
            text = self._fetch("")
            while True:
                this = reading.submit(self._read, text)
                guessed = _token(text)
                text = self._fetch(guessed) if guessed else b""
                page = this.result()
                yield page
                if not page.token:
                    return
                if page.token != guessed:
                    text = self._fetch(page.token)

    def _fetch(self, token: str) -> bytes:
        tries = 0
        while True:
            query = {**self._selector, "limit": str(self._limit)} | ({"continue": token} if token else {})
            try:
                text = self._api.get_bytes(self._path, query)
            except TooMuch:
                if self._limit == 1:
                    raise
                self._limit = (self._limit + 1) // 2
            except KubernetesError:
                tries += 1
                # The first page loses nothing when it begins anew.
                if tries == TRIES or not token or self._stopped.wait(PAUSE_S * 2 ** (tries - 1)):
                    raise
            else:
                self._fit(len(text))
                return text

    def _fit(self, size: int) -> None:
        """Ask for fewer objects if those of a page are large."""
        if size > PAGE_BYTES:
            self._limit = max(1, self._limit * PAGE_BYTES // size)

    def _read(self, text: bytes) -> Page[T]:
        try:
            return self._read_page(text)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
            what = f"{type(cause).__name__}: {cause}"
            raise Nonsense(f"a page of {self._path} cannot be read ({what}): is there a proxy in between?") from cause


def _token(text: bytes) -> str:
    found = _TOKEN.search(text[:_HEAD].partition(b'"items"')[0])
    return found[1].decode() if found else ""
