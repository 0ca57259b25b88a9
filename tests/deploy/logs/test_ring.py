"""The ring of events: what goes in comes out, in order and whole, and what does not fit is counted."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

ROOM = 1 << 17  # the smallest ring: two of the largest events


def test_events_come_out_as_they_went_in(rt):
    ring = rt.EventRing(1)
    assert ring.pop() is None
    assert ring.push(3, 7, -5, b"abc")
    assert ring.push(6, 8, 2**62, b"")
    assert ring.pop() == (3, 7, -5, b"abc")
    assert ring.pop() == (6, 8, 2**62, b"")
    assert ring.pop() is None


def test_a_full_ring_takes_nothing_and_counts_it(rt):
    ring, event = rt.EventRing(1), bytes(1000)
    taken = 0
    while ring.push(0, taken, 0, event):
        taken += 1
    assert taken == ROOM // 1024  # 24 of the header, 1000, aligned to 8
    assert ring.dropped == 1
    assert ring.pop()[1] == 0
    assert ring.push(0, taken, 0, event)
    assert ring.dropped == 1


def test_an_event_that_is_too_large_is_refused(rt):
    ring = rt.EventRing(1)
    assert not ring.push(0, 0, 0, bytes((1 << 16) + 1))
    assert ring.push(0, 0, 0, bytes(1 << 16))
    assert len(ring.pop()[3]) == 1 << 16


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 40_000)), max_size=60))
def test_it_is_a_queue_whatever_is_done(rt, steps):
    """None takes one out, a number puts an event of that size in."""
    ring, queue, used, order = rt.EventRing(1), deque(), 0, 0
    for size in steps:
        if size is None:
            assert ring.pop() == (queue.popleft() if queue else None)
            used = sum(-(-(24 + len(event[3])) // 8) * 8 for event in queue)
            continue
        event = (size % 7, order, -size, bytes((size + k) % 256 for k in range(size)))
        need = -(-(24 + size) // 8) * 8
        assert ring.push(*event) == (used + need <= ROOM)
        if used + need <= ROOM:
            queue.append(event)
            used += need
        order += 1
    while queue:
        assert ring.pop() == queue.popleft()
