"""HTTP whose heads have a time: who sends half of one holds no connection for long."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def timed_protocol(seconds: float) -> type[H11Protocol]:
    """Uvicorn's protocol, which closes a connection that has not sent a whole head after so many seconds."""

    class Timed(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle: Any = self.cycle  # None before the first request
            waits = cycle is None or cycle.response_complete
            if self._late is not None and not waits:
                self._late.cancel()
                self._late = None
            elif self._late is None and waits:
                self._late = self.loop.call_later(seconds, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._late is not None:
                self._late.cancel()

    return Timed
