"""The WriteTxnMarkers requests that a broker sends to the leaders of the data.

If the link is cut or the receiver stops, the response is lost. The coordinator resends the request
when links are restored, when leaders change, or after a delay. It first abandons the earlier
request, like a client that closes its connection: a receiver ignores an abandoned request, which
could otherwise end a later transaction.

Source: Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from logstore.cluster.broker_process import BrokerProcess, Receiver
    from logstore.coordinator.markers import MarkerErrors
    from logstore.messages.types import WriteTxnMarkersRequest
    from logstore.runtime import Unsubscribe


class SentMarkers:
    """A request awaiting its response.

    Parameters
    ----------
    number : int
        The number of the request.
    target : int
        The broker id of the receiver.

    Attributes
    ----------
    errors : dict or None
        The response, or None if it has not arrived.
    receiver : Receiver or None
        The receiving broker, or None if it was not running.
    is_given_up : bool
        Whether the request was abandoned, so that it has no effect if it still arrives.
    """

    def __init__(self, process: BrokerProcess, number: int, target: int) -> None:
        self._process = process
        self.number = number
        self._target = target
        self.receiver: Receiver | None = None
        self._listener: Callable[[], object] | None = None
        self.errors: MarkerErrors | None = None
        self.is_given_up = False

    def is_done(self) -> bool:
        """Return whether the response has arrived or can no longer arrive."""
        process = self._process
        if self.errors is not None or self.is_given_up or process.is_over:
            return True
        if self.receiver is None or self.receiver.is_over:
            return True
        return process.network.cut_since_ms(process.broker_id, self._target) is not None

    def subscribe(self, listener: Callable[[], object]) -> Unsubscribe:
        """Call the listener when the response arrives."""
        self._listener = listener
        return self._unsubscribe

    def _unsubscribe(self) -> None:
        self._listener = None

    def answer(self, errors: MarkerErrors) -> None:
        """Store the response."""
        self.errors = errors
        self._wake()

    def give_up(self) -> None:
        """Abandon the request, so that it has no effect if it still arrives."""
        self.is_given_up = True
        self._wake()

    def _wake(self) -> None:
        if (listener := self._listener) is not None:
            listener()


class MarkerChannel:
    """A broker's requests awaiting their responses. The class is thread-safe."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._sent: dict[int, SentMarkers] = {}

    def send(self, target: int, request: WriteTxnMarkersRequest) -> SentMarkers:
        """Send a request to a broker."""
        process = self._process
        source, number = process.broker_id, process.network.number()
        sent = self._sent[number] = SentMarkers(process, number, target)

        def deliver(peer: Receiver) -> None:
            if not sent.is_given_up:
                peer.on_markers(source, number, request)

        sent.receiver = process.send(target, "WriteTxnMarkers", deliver)
        return sent

    def on_response(self, number: int, errors: MarkerErrors) -> None:
        """Complete a request, unless it was abandoned."""
        if (sent := self._sent.pop(number, None)) is not None:
            sent.answer(errors)

    def give_up(self, *numbers: int) -> None:
        """Abandon the given requests, or all requests if none are given."""
        for number in numbers or list(self._sent):
            if (sent := self._sent.pop(number, None)) is not None:
                sent.give_up()
