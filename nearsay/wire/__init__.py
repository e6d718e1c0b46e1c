"""What crosses a process boundary: messages, codec, session, errors. Pure: no clock, no socket, no log."""
