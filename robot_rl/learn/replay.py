"""Transitions of the last steps of all worlds, on the device of the learner."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Context
from robot_rl.learn.rollout import Rollout
from robot_rl.machine import memory_bytes
from robot_rl.metrics.rows import to_stderr


class Replay:
    """A ring of steps of N worlds. A transition's next observation is that of the next step, so each is kept once.

    An episode that was cut short by the clock would have continued unseen: such transitions are not learned from. Nor
    are those of quarantined worlds.

    Attributes:
        rows: steps C that fit.
        counts: (N,) steps of each world that were put in in all; a world of a slow simulator has fewer.
    """

    def __init__(self, capacity: int, worlds: int, sizes: Mapping[str, int], device: torch.device | str) -> None:
        """Allocate the ring.

        Args:
            capacity: transitions, of all worlds together.
            worlds: worlds N.
            sizes: components of the tensors kept of each transition, by name: "actor", "critic", "action" and others.
            device: of the memory.
        """
        self.rows = max(capacity // worlds, 2)
        self.worlds, self._device = worlds, torch.device(device)
        self._kept = {name: torch.zeros(self.rows, worlds, size, device=device) for name, size in sizes.items()}
        self._reward = torch.zeros(self.rows, worlds, device=device)
        self._flags = torch.zeros(self.rows, worlds, 3, dtype=torch.bool, device=device)  # Ended, to learn from, seen.
        self.counts = torch.zeros(worlds, dtype=torch.int64)
        self._first = torch.zeros(worlds, dtype=torch.int64, device=device)

    @staticmethod
    def bytes_for(capacity: int, worlds: int, sizes: Mapping[str, int]) -> int:
        """Return how large a ring would be; the arguments are those of the constructor."""
        return max(capacity // worlds, 2) * worlds * (4 * (sum(sizes.values()) + 1) + 3)

    @property
    def size(self) -> int:
        """Steps of each world that can be drawn from: all but the newest, which is without a next step yet.

        If some worlds have fewer, it is as many of each.
        """
        return max(min(int(self.counts.min()), self.rows) - 1, 0)

    def add(self, rollout: Rollout, parts: Mapping[str, Tensor], useful: Tensor) -> None:
        """Put in the steps of a rollout, each world's after those it has, in place of the oldest.

        Args:
            rollout: the rollout.
            parts: (T, N, size) the tensors kept of each step, by name.
            useful: (T, N) bool, the steps that may be learned from.
        """
        steps = len(useful)
        if steps > self.rows:
            raise ValueError(f"a rollout of {steps} steps does not fit into a replay memory of {self.rows}")
        places = [(self._kept[name], tensor) for name, tensor in parts.items()]
        places.append((self._reward, rollout.reward))
        places.append((self._flags, torch.stack((rollout.done, useful, rollout.valid), dim=-1)))
        for columns, worlds in rollout.by_world():
            count = int(self.counts[worlds.start])  # The worlds of a simulator advance together.
            slots = (torch.arange(steps, device=self._device) + count) % self.rows
            for ring, tensor in places:
                ring[:, worlds].index_copy_(0, slots, tensor[:, columns])
            self.counts[worlds] += steps
        self._set_first()

    def _set_first(self) -> None:
        """Set the number of each world's oldest step that can be drawn."""
        self._first.copy_((self.counts - 1 - self.size).clamp(min=0))

    def draw(self, size: int, generator: torch.Generator, gamma: float, horizon: int = 1) -> dict[str, Tensor]:
        """Return transitions drawn at random, with repetition, each over up to `horizon` steps.

        A transition ends sooner if the episode does, and before a step that may not be learned from.

        Args:
            size: how many, B.
            generator: source of the choice.
            gamma: discount a step.
            horizon: steps H that rewards are summed over.

        Returns:
            "actor", "critic", "next_actor", "next_critic" (B, D), "action" (B, A), "reward" (B,) the discounted sum,
            "discount" (B,) of the value after it: 0 if the episode ended; and "weight" (B,): 0 if it may not be
            learned from, else 1.
        """
        choices = max(self.size - horizon + 1, 1)
        step = torch.randint(choices, (size,), generator=generator, device=self._device)
        world = torch.randint(self.worlds, (size,), generator=generator, device=self._device)
        step += self._first[world]
        ahead = torch.arange(min(horizon, self.size) + 1, device=self._device)
        places = ((step[:, None] + ahead) % self.rows) * self.worlds + world[:, None]
        flags = self._flags.flatten(0, 1)[places]
        done, useful, seen = flags[:, :-1, 0], flags[:, :-1, 1], flags[:, 1:, 2]
        useful = useful & (done | seen)
        goes_on = (useful & ~done).cumprod(1)
        used = useful.to(goes_on.dtype)
        used[:, 1:] *= goes_on[:, :-1]
        steps = used.sum(1)
        here, there = places[:, 0], places.gather(1, steps[:, None]).squeeze(1)
        reward = self._reward.flatten()[places[:, :-1]]
        found = {
            "reward": (reward * used * gamma ** ahead[:-1]).sum(1),
            "discount": gamma**steps * ~(done & used.bool()).any(1),
            "weight": (steps > 0).to(reward.dtype),
        }
        for name, tensor in self._kept.items():
            found[name] = tensor.flatten(0, 1)[here]
            if name != "action":
                found[f"next_{name}"] = tensor.flatten(0, 1)[there]
        return found

    def draw_steps(self, size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return steps drawn at random, with repetition: all that is kept of each, and its "weight" (B,), as `draw`."""
        step = torch.randint(max(self.size, 1), (size,), generator=generator, device=self._device)
        world = torch.randint(self.worlds, (size,), generator=generator, device=self._device)
        places = ((step + self._first[world]) % self.rows) * self.worlds + world
        found = {name: tensor.flatten(0, 1)[places] for name, tensor in self._kept.items()}
        return found | {"weight": self._flags.flatten(0, 1)[places, 1].to(self._reward.dtype)}

    def draw_windows(self, size: int, steps: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Return windows of steps that follow one another in a world, drawn at random, with repetition.

        Args:
            size: how many, B.
            steps: steps of each; fewer if the memory has fewer.
            generator: source of the choice.

        Returns:
            All that is kept of each step (T, B, size), its "reward" (T, B), and "goes_on" (T, B): 1 until the first
            step that ended an episode or that may not be learned from, and with it 0.
        """
        steps = max(min(steps, self.size), 1)
        first = torch.randint(max(self.size - steps + 1, 1), (size,), generator=generator, device=self._device)
        world = torch.randint(self.worlds, (size,), generator=generator, device=self._device)
        ahead = torch.arange(steps, device=self._device)[:, None]
        places = ((first + self._first[world] + ahead) % self.rows) * self.worlds + world
        flags = self._flags.flatten(0, 1)[places]
        goes_on = (flags[..., 1] & ~flags[..., 0]).to(self._reward.dtype).cumprod(0)
        found = {name: tensor.flatten(0, 1)[places] for name, tensor in self._kept.items()}
        return found | {"reward": self._reward.flatten()[places], "goes_on": goes_on}

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything, live."""
        return {**self._kept, "reward": self._reward, "flags": self._flags, "counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state_dict`."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])
        self._set_first()


def make_replay(setting: str, capacity: int, steps: int, context: Context, sizes: Mapping[str, int]) -> Replay:
    """Allocate a learner's replay memory, and say first how large it makes the newest checkpoints.

    Args:
        setting: The setting that gives the capacity, such as "flashsac.replay".
        capacity: Transitions, of all worlds together.
        steps: Control steps of a rollout.
        context: What the learner is built for.
        sizes: As for `Replay`.

    Raises:
        UserError: A rollout does not fit, or the memory does not fit the device's.
    """
    worlds, needed = context.env.num_envs, Replay.bytes_for(capacity, context.env.num_envs, sizes)
    if steps > capacity // worlds:
        raise UserError(
            setting,
            capacity,
            f"is less than a rollout of {steps} steps of {worlds} worlds",
            f"give at least {(steps + 1) * worlds}",
        )
    there = memory_bytes(str(context.device))
    if there is not None and needed > there:
        raise UserError(
            setting,
            capacity,
            f"needs {needed / 1000000000.0:.1f} GB, {context.device} has {there / 1000000000.0:.1f} GB",
            f"give at most {int(capacity * there / needed)}",
        )
    if context.ranks.is_first:
        to_stderr(
            f"replay memory: {capacity} transitions, {needed / 1e6:.0f} MB in the newest two checkpoints ({setting})"
        )
    return Replay(capacity, worlds, sizes, context.device)
