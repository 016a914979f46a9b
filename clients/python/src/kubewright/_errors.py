"""What goes wrong, in words."""

from __future__ import annotations

from typing import Any


class ClusterError(Exception):
    """The cluster did not start or stop as it should, ended by itself, or could not do what the package asked of it."""


class ApiError(ClusterError):
    """The API server refused a request of the package; `status` is its answer."""

    def __init__(self, attempted: str, code: int, status: dict[str, Any]) -> None:
        super().__init__(f"cannot {attempted}: {status.get('message') or code}")
        self.code = code
        self.status = status
