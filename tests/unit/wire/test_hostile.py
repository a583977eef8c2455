"""Hostile frames: requests of every API and version with bytes changed, cut, added; random ones."""

import logging
import random
import struct

import pytest

from logstore.errors import MessageError
from logstore.messages.types import ApiVersionsRequest
from logstore.wire.frames import UnsupportedRequestError, parse_body, parse_request_head
from tests.support.world.hostile import sound_frames
from tests.support.world.wire import Client

SPICE = (0, 1, 0x7F, 0x80, 0xFF)


def frames(seed, each):
    """Yield frames of every API and version that is served, sound and then spoilt."""
    rng = random.Random(seed)
    for sound in sound_frames(rng, each):
        frame = bytearray(sound)
        for _ in range(rng.randrange(4)):
            if len(frame) > 8:
                frame[rng.randrange(8, len(frame))] = rng.choice(SPICE)
        cut = rng.randrange(3)
        if cut == 1:
            frame = frame[: rng.randrange(len(frame))]
        elif cut == 2:
            frame += rng.randbytes(rng.randrange(9))
        yield bytes(frame)


@pytest.mark.parametrize("seed", range(2))
def test_spoilt_frames_are_parsed_or_refused(seed):
    parsed = 0
    for frame in frames(seed, 8):
        try:
            head = parse_request_head(frame)
            if head.body_at >= 0:
                parse_body(head, frame, 1000)
            parsed += 1
        except (UnsupportedRequestError, MessageError):
            pass
    assert parsed > 100


def test_spoilt_frames_break_no_handler(broker, listener, caplog):
    """Whatever is asked, the answer is one of Kafka's or the end of the connection."""
    broker.create_topic("t")
    asked = list(frames(7, 2))
    with caplog.at_level(logging.ERROR):
        for frame in asked:
            with Client(listener) as client:
                client.socket.settimeout(0.05)
                client.send_raw(frame)
                try:
                    while len(client.socket.recv(1 << 16)) == 1 << 16:
                        pass
                except (TimeoutError, ConnectionError):
                    pass
    assert [record.getMessage() for record in caplog.records] == []
    assert len(asked) > 300
    with Client(listener) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0


def test_noise_ends_its_connection(listener):
    rng = random.Random(1)
    for _ in range(50):
        with Client(listener) as client:
            noise = rng.randbytes(rng.randrange(1, 60))
            client.socket.sendall(struct.pack(">i", len(noise)) + noise)
            assert client.is_at_end()
