"""Kafka's wire protocol: frames, sessions and a handler for each API.

Each listener has an event loop in a separate thread (`logstore.runtime.loops`), with one coroutine
per connection. The requests of a connection are handled one at a time, in order.

Interfaces
----------
- **A handler** is a function from (request, session) to a response. It is in a module of
  `registry.FAMILIES` and registered by name::

      @handles("Heartbeat")
      def heartbeat(request: HeartbeatRequest, session: Session) -> HeartbeatResponse: ...

  Requests and responses are messages of `logstore.messages.types`. `registry.HandlerThread` gives
  the thread of the handler. A coroutine (`async def`) runs on the event loop and passes blocking
  calls to `await session.run(call)`. If the handler returns None, no response is sent. An exception
  closes the connection, as in Kafka, so errors for clients belong in the response.
- **The session** (`session.Session`) represents one connection: `principal`, `client_id`,
  `client_host`, the `version` of the current request, `address` (the advertised address), and
  `allows(operation, resource_type, name)`, which every handler checks. `ends = True` closes the
  connection after the response.
- **The service** (`session.service`) is shared by all connections: `manager`, `groups`,
  `transactions`, `authorizer`, `credentials`, `limits`, `loops` (the event loop), `run`.
- **Versions** are in `versions.SERVED`. An API is advertised if it has a handler and an entry
  there.
- **Authentication**: while `session.is_authenticated` is False, only handlers registered with
  `before_authentication=True` are called. They use `session.sasl`.
- **Waiting** for logs and replicas uses `service.purgatory`. Waiting for a group uses a callback
  that completes a future through `service.loops.wake`.
"""
