"""Tables of all messages, written by `make messages`."""
