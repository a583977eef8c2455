"""A broker in this process: topics, producers, consumers, compaction, and the wire protocol."""

from typing import TYPE_CHECKING

from logstore.lazy import import_on_use

if TYPE_CHECKING:
    from logstore.broker.broker import Broker

__all__ = ["Broker"]

__getattr__, __dir__ = import_on_use(__name__, {"logstore.broker.broker": ("Broker",)})
