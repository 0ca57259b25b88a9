"""Position and shape of a term in its group, as a learner with encoders takes it."""

import pytest
import torch
from robot_rl_envs.mdp import observations, sensing
from robot_rl_envs.task import Observation, ObservationGroup


@pytest.mark.long
def test_a_scan_is_a_grid_for_each_value_of_its_history(puppet, go2_task):
    gyro = Observation(observations.base_ang_vel, history=3)
    terms = {"gyro": gyro, "scan": Observation(sensing.height_scan, offset=0.3, history=2)}
    groups = {"actor": ObservationGroup(terms=terms), "critic": ObservationGroup(terms={"scan": terms["scan"]})}
    env = puppet(go2_task(name="terms", observations=groups, mirror=True)).env
    expected = {"actor.gyro": (0, 9), "actor.scan": (9, 2, 11, 17), "critic.scan": (0, 2, 11, 17)}
    assert env.observation_terms == expected
    # The mirror turns the rows of every grid around, whatever they hold.
    perm, sign = env.mirror["actor"]
    grids = torch.randn(4, 2, 11, 17)
    vector = torch.cat((torch.zeros(4, 9), grids.flatten(1)), dim=1)
    image = (vector[:, perm] * sign)[:, 9:].view(4, 2, 11, 17)
    assert torch.equal(image, grids.flip(2))
