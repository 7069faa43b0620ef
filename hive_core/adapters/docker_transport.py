"""How docker-py's requests reach the engine's socket.

Used by the Docker adapter to make its client. The library's own transport keeps a pool of connections for
every URL, so hardly any call reuses one, and among many threads a pool may be closed under a call that has
just picked it; it also leaves a socket behind for every refused connection. This one has one pool.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import requests
import urllib3
from docker.api.client import APIClient
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

POOL_SIZE = 64


class _UnixConnection(HTTPConnection):
    def __init__(self, host: str, *, socket_path: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._socket_path = socket_path

    def connect(self) -> None:
        wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            wire.settimeout(self.timeout)
            wire.connect(self._socket_path)
        except BaseException:
            wire.close()
            raise
        self.sock = wire


class _UnixPool(HTTPConnectionPool):
    ConnectionCls = _UnixConnection


class UnixAdapter(HTTPAdapter):
    """Sends every request over one pool of connections to one Unix socket."""

    def __init__(self, socket_path: str) -> None:
        super().__init__()
        self._pool = _UnixPool("localhost", maxsize=POOL_SIZE, socket_path=socket_path)

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None = None,
        cert: tuple[str, str] | str | None = None,
    ) -> urllib3.HTTPConnectionPool:
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Mapping[str, str] | None) -> str:
        return request.path_url

    def close(self) -> None:
        super().close()
        self._pool.close()


def api_client(socket_path: str, timeout_s: float, version: str) -> APIClient:
    """Return a client for this socket; made without contact."""
    client = APIClient(
        f"unix://{socket_path}",
        version=version,
        timeout=timeout_s,  # type: ignore[arg-type]  # the stubs say int; it goes to requests as it is
    )
    client.mount(f"{client.base_url}/", UnixAdapter(socket_path))
    client.trust_env = False  # a proxy or .netrc of the daemon's environment has no say on a local socket
    return client
