"""Curricula against NumPy: who is promoted, who is demoted, which command ranges grow."""

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import curricula, metrics, terminations
from robot_rl_envs.task import Curriculum, Metric, Termination
from robot_rl_envs.terrain import TerrainCfg
from robot_rl_envs.terrain.tiles import Flat

N, SEED, ROWS, TILE = 64, 31, 4, 4.0
PROMOTE, DEMOTE = 0.8, 0.5
THRESHOLD, STEP, STD = 0.6, 0.1, 0.5
DT, EPISODE_S = 0.02, 1.0
FORMULAS = {"terrain_levels": "levels", "command_range": "range"}


@pytest.fixture(scope="module")
def doll(puppet, go2_task_once):
    terrain = TerrainCfg(tiles={"flat": Flat()}, num_rows=ROWS, num_columns=2, tile_size=TILE, border=2.0)
    task = go2_task_once(
        name="curricula",
        episode_length_s=EPISODE_S,
        terrain=terrain,
        terminations={"tilted": Termination(terminations.tilted, limit_rad=0.5)},
        curricula={
            "levels": Curriculum(curricula.terrain_levels, promote_share=PROMOTE, demote_share=DEMOTE),
            "range": Curriculum(curricula.command_range, threshold=THRESHOLD, step=STEP, std=STD),
        },
        metrics={"level": Metric(metrics.terrain_level)},
    )
    return puppet(task, num_envs=N, seed=SEED)


@pytest.fixture(scope="module")
def ended(doll):
    """One episode of every world: where it was, its commands, how it ended, and what it learnt."""
    rng = np.random.default_rng(2)
    env, scene = doll.env, doll.env.scene
    level = np.tile(np.arange(ROWS), N // ROWS)
    doll.put("terrain_level", level)
    doll.put("command_range", rng.uniform(0, 1, N))
    env.reset()
    start = doll.snapshot()
    qpos = np.tile(scene.default_qpos, (N, 1))
    qpos[:, :3] += start.env_origin_w
    # straight away in some direction, none to 3 m, in ten steps
    way = rng.uniform(-1, 1, size=(N, 2))
    way *= (rng.uniform(0, 3, size=N) / np.linalg.norm(way, axis=1))[:, None]
    fell = rng.random(N) < 0.3
    steps, commanded, tracked = 10, np.zeros(N), np.zeros(N)
    for k in range(1, steps + 1):
        command = rng.uniform(-3, 3, size=(N, 3)) * (rng.random((N, 1)) < 0.8)
        # close to the command in some of the worlds, far from it in others
        velocity = command[:, :2] + rng.uniform(-1, 1, size=(N, 2)) * np.linspace(0.1, 1.2, N)[:, None]
        doll.put("command", command)
        now = qpos.copy()
        now[:, :2] += way * k / steps
        if k == steps:
            env.episode_length_buf[torch.from_numpy(~fell)] = env.max_episode_length
            now[fell, 3:7] = [np.cos(0.5), np.sin(0.5), 0, 0]
        qvel = np.zeros((N, 18))
        qvel[:, :2] = velocity
        if k == steps:
            # velocities are given in the world; those who lie are rolled, so theirs is not the base's
            qvel[fell, :2] = 0.0
            velocity = np.where(fell[:, None], 0.0, velocity)
        dones = doll.step(qpos=now, qvel=qvel)[2].numpy()
        commanded += np.linalg.norm(command[:, :2], axis=1) * DT
        tracked += np.exp(-np.sum((command[:, :2] - velocity) ** 2, axis=1) / STD**2)
    assert dones.all()
    commanded += np.where(fell, np.linalg.norm(command[:, :2], axis=1) * (EPISODE_S - steps * DT), 0.0)
    after = doll.snapshot()
    went = np.linalg.norm(way, axis=1)
    return {"start": start, "after": after, "went": went, "commanded": commanded, "mean": tracked / steps, "fell": fell}


def test_every_curriculum_has_a_formula_here(curriculum_term):
    assert curriculum_term in FORMULAS


def test_levels_are_their_formula(ended, stream):
    level, after = ended["start"].terrain_level, ended["after"]
    want = level.copy()
    for i in range(N):
        anywhere = int(stream(SEED, "curricula.levels", i, after.counter[i]).uniform(0, 1) * ROWS)
        if ended["went"][i] > PROMOTE * TILE / 2:
            want[i] = level[i] + 1 if level[i] + 1 < ROWS else anywhere
        elif ended["went"][i] < DEMOTE * ended["commanded"][i]:
            want[i] = max(level[i] - 1, 0)
    np.testing.assert_array_equal(after.terrain_level, want)
    change = after.terrain_level - level
    solved = (level == ROWS - 1) & (ended["went"] > PROMOTE * TILE / 2)
    assert (change[~solved] == 1).any()
    assert (change[~solved] == -1).any()
    assert (change[~solved] == 0).any()
    assert len(set(after.terrain_level[solved])) > 1, "those who solved the last row all go to the same one"


def test_a_world_starts_where_its_new_level_is(ended):
    after = ended["after"]
    origins = after.terrain_origins[after.terrain_level.astype(int), after.terrain_column.astype(int)]
    np.testing.assert_array_equal(after.env_origin_w, origins)
    np.testing.assert_allclose(after.base_pos_w[:, :2], origins[:, :2], atol=1e-6)


def test_command_ranges_are_their_formula(ended):
    before, after = ended["start"].command_range, ended["after"].command_range
    worse = ended["fell"] | (ended["mean"] < 0.5 * THRESHOLD)
    better = ~worse & (ended["mean"] > THRESHOLD)
    np.testing.assert_allclose(after, np.clip(before + STEP * better - STEP * worse, 0, 1), atol=1e-6)
    assert better.any()
    assert (worse & ~ended["fell"]).any()
    assert (~better & ~worse).any()
    assert (after == 0).any() or (after == 1).any()


def test_sums_start_from_zero_in_each_episode(doll):
    """Also after a quarantine, at which no curriculum runs."""
    doll.env.reset()
    s = doll.snapshot()
    qpos = np.tile(doll.env.scene.default_qpos, (N, 1))
    qpos[:, :3] += s.env_origin_w
    doll.put("command", [1.0, 0.0, 0.0])
    for _ in range(3):
        doll.step(qpos=qpos, qvel=np.zeros((N, 18)))
    np.testing.assert_allclose(doll.snapshot().commanded_distance_m, 3 * DT, rtol=1e-5)
    bad = qpos.copy()
    bad[5] = np.nan
    level = doll.snapshot().terrain_level
    assert not doll.step(qpos=bad, qvel=np.zeros((N, 18)))[3]["valid"][5]
    np.testing.assert_array_equal(doll.snapshot().terrain_level, level)
    doll.put("command", [1.0, 0.0, 0.0])
    doll.step(qpos=qpos, qvel=np.zeros((N, 18)))
    distance = doll.snapshot().commanded_distance_m
    assert distance[5] == pytest.approx(DT, rel=1e-5)
    np.testing.assert_allclose(np.delete(distance, 5), 5 * DT, rtol=1e-5)


def test_levels_stay_within_the_rows_whatever_happens(doll):
    """Two hundred episodes of worlds that always fail, then of worlds that always get far."""
    for far, want in ((0.0, {0}), (1.9, set(range(ROWS)))):
        for _ in range(40):
            s = doll.snapshot()
            qpos = np.tile(doll.env.scene.default_qpos, (N, 1))
            qpos[:, :3] += s.env_origin_w
            qpos[:, 0] += far
            doll.put("command", [1.0, 0.0, 0.0])
            doll.env.episode_length_buf[:] = doll.env.max_episode_length
            doll.step(qpos=qpos, qvel=np.zeros((N, 18)))
        levels = set(doll.snapshot().terrain_level.astype(int))
        assert levels == want


def test_the_log_shows_the_level(doll):
    doll.env.pop_metrics()
    levels = doll.snapshot().terrain_level
    s = doll.snapshot()
    qpos = np.tile(doll.env.scene.default_qpos, (N, 1))
    qpos[:, :3] += s.env_origin_w
    doll.step(qpos=qpos, qvel=np.zeros((N, 18)))
    assert doll.env.pop_metrics()["tracking/level"] == pytest.approx(levels.mean())


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (Curriculum(curricula.terrain_levels, promote_share=1.0, demote_share=0.5), ["promote_share=1", "terrain"]),
        (Curriculum(curricula.command_range, threshold=1.5, step=0.1, std=0.5), ["threshold=1.5", "[0, 1]"]),
        (Curriculum(curricula.command_range, threshold=0.5, step=-0.1, std=0.5), ["step=-0.1", "[0, 1]"]),
    ],
)
def test_curricula_that_make_no_sense_are_refused_before_anything_runs(go2_task, term, words):
    with pytest.raises(ValueError, match=".") as caught:
        make_env(go2_task(curricula={"learn": term}), num_envs=2, engine="mujoco")
    assert all(word in str(caught.value) for word in ["curricula.learn.", *words]), caught.value


def test_a_deviation_of_0_is_no_curriculum():
    with pytest.raises(ValueError, match=r"std=0: must be greater than 0"):
        Curriculum(curricula.command_range, threshold=0.5, step=0.1, std=0.0)
