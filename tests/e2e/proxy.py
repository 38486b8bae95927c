"""An HTTP proxy before the API server that delays watches, or commits a request and drops the reply."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"}
_MIB = 1 << 20


class Proxy:
    """Forwards to the API server of a kubeconfig; a context manager.

    It serves with the API server's own certificate: over plain HTTP the clients of Kubernetes send no token.

    Attributes
    ----------
    watch_delay_s
        Seconds that each piece of a watch is held back.
    drops_reply
        Asked with method and path of each request that the server has answered: whether the caller gets no answer.
    """

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        self._certificate = (pki / "apiserver.crt", pki / "apiserver.key")
        self._kubeconfig = yaml.safe_load(kubeconfig.read_text())
        self._target: str = self._kubeconfig["clusters"][0]["cluster"]["server"]
        self.watch_delay_s = 0.0
        self.drops_reply: Callable[[str, str], bool] = lambda _method, _path: False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._port = 0

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig that leads through the proxy."""
        path.write_text(yaml.safe_dump(self._kubeconfig).replace(self._target, f"https://127.0.0.1:{self._port}"))
        return path

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(30)

    async def _start(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        timeout = aiohttp.ClientTimeout(total=None)
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            auto_decompress=False,
            # A caller that does not ask for compression does not expect it.
            skip_auto_headers=["Accept-Encoding"],
            timeout=timeout,
        )
        server = web.Application(client_max_size=64 * _MIB)
        server.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(server, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        served.load_cert_chain(*self._certificate)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=served)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._client.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        body = await request.read()
        async with self._client.request(request.method, self._target + request.path_qs, headers=headers, data=body) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
            if "content-encoding" in answer.headers:
                kept["Content-Encoding"] = answer.headers["content-encoding"]
            if "watch" in request.query:
                return await self._stream(request, answer, kept)
            content = await answer.read()
            if self.drops_reply(request.method, request.path):
                assert request.transport is not None
                request.transport.abort()
            return web.Response(status=answer.status, headers=kept, body=content)

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]) -> web.StreamResponse:
        """Hand on a watch; each piece is held back, but a piece does not wait for the one before it."""
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            async for piece in answer.content.iter_any():
                await pieces.put((self._loop.time() + self.watch_delay_s, piece))
            await pieces.put((0.0, b""))

        reader = asyncio.create_task(read())
        try:
            while True:
                due, piece = await pieces.get()
                if not piece:
                    return response
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await response.write(piece)
        finally:
            reader.cancel()
