"""Kafka's wire protocol in front of a broker: frames, sessions, and a handler for each API.

One event loop in one thread serves a listener (`logstore.runtime.loops`), a coroutine each of its
connections: requests of a connection are answered one by one, in their order.

Seams
-----
- **A handler** is a function from (request, session) to a response, in the file of its family
  (`registry.FAMILIES`), registered by name::

      @handles("Heartbeat")
      def heartbeat(request: HeartbeatRequest, session: Session) -> HeartbeatResponse: ...

  Requests and responses are messages of `logstore.messages.types`. `registry.Where` says which
  thread it runs in; a coroutine (`async def`) runs in the loop, waits for others there, and gives
  what may block to `await session.run(call)`. None as a response sends nothing. An error
  that it raises closes the connection, as Kafka does: what clients are to be told is in responses.
- **The session** (`session.Session`) is one connection: its `principal`, `client_id`,
  `client_host`, the `version` of the request that is being answered, `address` (where clients reach
  the broker), and `allows(operation, resource_type, name)`, which every handler asks as Kafka does.
  `ends = True` closes the connection behind the answer.
- **The service** (`session.service`) is what all connections share: `manager`, `groups`,
  `transactions`, `authorizer`, `users`, `limits`, `loops` (the event loop), `run`.
- **Versions** stand in `versions.SERVED`. An API that has a handler and a line there is advertised.
- **Authentication**: as long as `session.is_authenticated` is False only handlers registered with
  `before_authentication=True` are called; `session.sasl` is theirs.
- **Waiting** for logs and replicas is `service.purgatory`; for a group, a callback that ends a
  future of the loop, by `service.loops.wake`.
"""
