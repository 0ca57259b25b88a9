"""The pace of the binary in lockstep, with a link that holds few commands."""

from types import SimpleNamespace

from robot_rl.sim2sim.link import Lockstep


class FullSocket:
    """A link with `room` for commands that wait: an answer to a state that finds it full is lost, as of a datagram."""

    def __init__(self, room):
        self.low, self.measured, self.command, self.notes = None, (), None, []
        self.room, self.sent, self.waiting = room, 0, [0] * room

    def send(self, robot_time_s):
        self.sent += 1
        self.waiting += [self.sent] if len(self.waiting) < self.room else []
        return self.sent

    def take(self):
        self.notes += [
            SimpleNamespace(from_policy=sequence > 0, state_sequence=sequence, send_time_ns=0)
            for sequence in self.waiting
        ]
        self.waiting.clear()
        return True

    def wait(self, seconds):
        raise AssertionError(f"no answer to state {self.sent}")


def test_after_a_pause_the_first_state_is_answered():
    link = FullSocket(room=4)  # The binary's writer has filled it.
    body = SimpleNamespace(sense=lambda *_: None, clock_s=0.0)
    Lockstep(link, SimpleNamespace(alive=True), 1).request(body)
    assert (link.sent, link.notes[-1].state_sequence) == (1, 1)
