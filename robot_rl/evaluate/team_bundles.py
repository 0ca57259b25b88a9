"""The bundles of a team with several policies: one for each, written, and driving the robots of its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.evaluate.bundle_folders import is_bundle, team_bundles
from robot_rl.evaluate.controllers import Bound, BundleController, Controller, Shadow


class RobotRows:
    """Some robots of one role, in every world of a team, as an environment of robots.

    Attributes:
        rows: (n,) their rows in the team's environment.
        num_envs: Number n of rows.
        num_actions: Components of an action of theirs.
        device, step_dt: As of the team's environment.
    """

    def __init__(self, env: Any, places: Sequence[int]) -> None:
        """Take the robots at these places in a team, which have one role."""
        self._env = env
        role = env.roles[places[0]]
        self._crew, _ = env.parts()[role]
        members = [agent for agent, own in enumerate(env.roles) if own == role]
        self.rows = torch.arange(env.num_envs).view(env.num_worlds, -1)[:, list(places)].flatten()
        self._own = torch.tensor([members.index(place) for place in places])
        self._size, self._observed = len(members), env.role_sizes[role][0]
        self.num_envs, self.num_actions = len(self.rows), self._crew.num_actions
        self.device, self.step_dt = env.device, env.step_dt

    @property
    def taking_part(self) -> Tensor:
        """(n,) bool, which of them take part."""
        return self._env.taking_part[self.rows]

    def describe_policy(self) -> dict[str, Any]:
        """Return the description of the policy."""
        return self._crew.describe_policy() | {"task": self._env.cfg.name}

    def robot_state(self) -> dict[str, Tensor]:
        """Return the raw signals of its robots, one row each."""
        signals = self._crew.robot_state()
        return {
            name: value.view(self._env.num_worlds, self._size, *value.shape[1:])[:, self._own].flatten(0, 1)
            for name, value in signals.items()
        }

    def observed(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows of a team's group "actor", as wide as the role's."""
        return {"actor": obs["actor"][self.rows][:, : self._observed]}


class TeamBundles:
    """A bundle for each policy of a team, run side by side.

    Attributes:
        parts: The robots of each policy, and what runs its bundle.
        names: The bundles' folders, in that order.
    """

    def __init__(self, bundle: Path, env: Any) -> None:
        """Load the bundles in the folders of a directory.

        Raises:
            UserError: A robot has none.
            ContractError: A bundle is damaged, or is for another robot or another control period.
        """
        self.parts: list[tuple[RobotRows, BundleController]] = []
        self.names: list[str] = []
        found, places = team_bundles(bundle, env.cfg), {name: place for place, name in enumerate(env.agents)}
        for path in dict.fromkeys(found.values()):
            rows = RobotRows(env, [places[name] for name, own in found.items() if own == path])
            self.parts.append((rows, BundleController(path, rows)))
            self.names.append(path.name)

    def act(self, env: Any, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        actions = torch.zeros(env.num_envs, env.num_actions, device=env.device)
        for rows, controller in self.parts:
            actions[rows.rows, : rows.num_actions] = controller.act(rows, obs)
        return actions

    def reset(self, done: Tensor) -> None:
        """Clear clock, history and last action of these rows (N,) bool."""
        for rows, controller in self.parts:
            controller.reset(done[rows.rows])


class TeamShadow:
    """The bundles of a team that compute their actions on the torch policies' states; see `Shadow`."""

    def __init__(self, bundles: TeamBundles, bounds: Mapping[str, Bound | None]) -> None:
        """Compare with the bundles of a team; `bounds` has that of each policy, or of all as ""."""
        self._parts = [
            (rows, Shadow(controller, bounds.get(name, bounds.get(""))))
            for name, (rows, controller) in zip(bundles.names, bundles.parts, strict=True)
        ]

    @property
    def action_bound(self) -> float:
        """Largest difference that the policies' arithmetic allows in the states so far."""
        return max(shadow.action_bound for _, shadow in self._parts)

    @property
    def are_within(self) -> bool:
        """Whether no difference was larger than its own state allows."""
        return all(shadow.are_within for _, shadow in self._parts)

    @property
    def action_error(self) -> float:
        """Largest difference of an action so far."""
        return max(shadow.action_error for _, shadow in self._parts)

    @property
    def observation_error(self) -> float | None:
        """Largest difference of an observation so far, as of `Shadow`."""
        errors = [shadow.observation_error for _, shadow in self._parts]
        known = [error for error in errors if error is not None]
        return max(known) if len(known) == len(errors) else None

    def compare(self, env: Any, obs: Any, action: Tensor) -> None:
        """Compare the bundles' actions and observations with the torch policies', before the step."""
        for rows, shadow in self._parts:
            shadow.compare(rows, rows.observed(obs), action[rows.rows, : rows.num_actions])

    def reset(self, done: Tensor) -> None:
        """Clear clock, history and last action of these rows (N,) bool."""
        for rows, shadow in self._parts:
            shadow.reset(done[rows.rows])


def bundle_controller(bundle: Path, env: Any) -> Controller:
    """Return what runs a bundle, or the bundles of a team, in an environment; raises what those do."""
    return BundleController(bundle, env) if is_bundle(bundle) else TeamBundles(bundle, env)


def bundle_shadow(bundle: Path, env: Any, bounds: Mapping[str, Bound | None]) -> Shadow | TeamShadow:
    """Return what compares a bundle, or the bundles of a team, with the torch policy in an environment.

    `bounds` are those of `Shadow`, of a policy by its name, or of all as "".
    """
    if is_bundle(bundle):
        return Shadow(BundleController(bundle, env), bounds.get(""))
    return TeamShadow(TeamBundles(bundle, env), bounds)


class PolicyRows(RobotRows):
    """The robots of one policy of a team, as an environment to record their golden sequence in.

    The others are driven by their own policies.
    """

    def __init__(self, env: Any, actor: Any, index: int) -> None:
        """Take the robots of policy `index` of a `robot_rl.learn.networks.team.TeamActor`."""
        super().__init__(env, actor.members.groups[index])
        self._actor = actor

    def reset(self) -> Any:
        """Reset every world."""
        return self._env.reset()

    @torch.no_grad()
    def step(self, action: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        """Apply the actions (n, num_actions) of its robots; see the environment's own."""
        everything = self._actor.mean(self._env.get_observations()["actor"])
        everything[self.rows, : self.num_actions] = action
        obs, reward, done, extras = self._env.step(everything)
        return obs, reward[self.rows], done[self.rows], extras


def export_team(env: Any, actor: Any, out: Path, *, training: Any, opset: int | None = None) -> dict[str, Any]:
    """Write the bundle of each policy into a folder of its name below `out`; return the reports of their checks."""
    from robot_rl_deploy.export import export_policy

    reports = {}
    for index, name in enumerate(actor.names):
        rows = PolicyRows(env, actor, index)
        reports[name] = export_policy(rows, actor.each()[index], out / name, run=training, opset=opset)
    return reports
