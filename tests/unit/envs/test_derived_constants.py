"""What our kernels derive from masses, inertias and armature, against mj_setConst."""

import copy
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import warp as wp
from robot_rl_envs.engines.derived import DerivedConstants
from robot_rl_envs.entity.scene import make_scene
from robot_rl_tasks.registry import get_task

N, BIT = 5, 8
NAMES = ("body_subtreemass", "body_invweight0", "dof_invweight0")
MIXED = """
<mujoco>
  <worldbody>
    <body pos="0 0 0.5"><inertial pos="0.1 0 0" mass="3" diaginertia="0.1 0.1 0.1"/>
      <body pos="0.2 0 0"><freejoint/><geom type="box" size="0.1 0.2 0.3" pos="0.05 0 0" euler="20 30 40"/></body>
    </body>
    <body pos="0 1 1"><freejoint/><geom type="box" size="0.1 0.2 0.05" pos="0.02 0.01 0"/>
      <body pos="0.1 0 0" euler="10 20 30"><joint type="ball"/><geom type="capsule" size="0.05 0.2" pos="0.1 0 0.1"/>
        <body pos="0 0.1 0"><geom type="sphere" size="0.06" pos="0 0.1 0"/></body>
        <body pos="0 0 0.3"><joint name="s" type="slide" axis="1 1 0" armature="0.3"/>
          <geom type="box" size="0.1 0.1 0.05" pos="0 0.1 0.02"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="s" armature="0.2"/></actuator>
</mujoco>
"""


def make_model(name):
    if name == "mixed":
        text = MIXED.replace('<body pos="0.2 0 0"><freejoint/>', '<body pos="0.2 0 0"><joint axis="0 1 1"/>')
        return mujoco.MjModel.from_xml_string(text)
    return make_scene(get_task(name)).model


@pytest.fixture(params=["mixed", "cartpole", "go2_flat"])
def drawn(request):
    """A model and, for a few worlds, models of other masses, centers of mass, inertias, their axes and armature."""
    nominal = make_model(request.param)
    rng = np.random.default_rng(3)
    worlds = []
    for _ in range(N):
        model = copy.copy(nominal)
        model.body_mass *= rng.uniform(0.5, 2.0, model.nbody)
        model.body_inertia *= rng.uniform(0.9, 1.1, model.body_inertia.shape)
        # where MuJoCo reads them: it takes some for the body's own
        free = (model.body_sameframe == 0)[:, None]
        model.body_ipos += free * rng.uniform(-0.02, 0.02, model.body_ipos.shape)
        turned = model.body_iquat + free * rng.uniform(-0.1, 0.1, model.body_iquat.shape)
        model.body_iquat[:] = turned / np.linalg.norm(turned, axis=1, keepdims=True)
        model.dof_armature *= rng.uniform(0.5, 2.0, model.nv)
        worlds.append(model)
    return nominal, worlds


def stacked(worlds, name, dtype):
    return wp.array(np.stack([getattr(model, name) for model in worlds]), dtype=dtype, device="cpu")


def test_the_constants_are_mujoco_s_own(drawn):
    nominal, worlds = drawn
    fields = {"body_mass": wp.float32, "body_inertia": wp.vec3, "body_ipos": wp.vec3, "body_iquat": wp.quat}
    arrays = {name: stacked(worlds, name, dtype) for name, dtype in (fields | {"dof_armature": wp.float32}).items()}
    arrays |= {
        "body_subtreemass": wp.zeros((N, nominal.nbody), dtype=wp.float32, device="cpu"),
        "body_invweight0": wp.zeros((N, nominal.nbody), dtype=wp.vec2, device="cpu"),
        "dof_invweight0": wp.zeros((N, nominal.nv), dtype=wp.float32, device="cpu"),
    }
    constants = DerivedConstants(nominal, SimpleNamespace(**arrays), N, "cpu")
    dirty = np.array([BIT, BIT | 4, 4, 0, BIT + 2], dtype=np.int32)
    constants.recompute(wp.array(dirty, dtype=wp.int32, device="cpu"), BIT)
    for i, model in enumerate(worlds):
        mujoco.mj_setConst(model, mujoco.MjData(model))
        for name in NAMES:
            got, want = arrays[name].numpy()[i], getattr(model, name)
            if dirty[i] & BIT:
                np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5 * np.abs(want).max(), err_msg=name)
            else:
                assert not got.any(), "a world that nobody wrote was touched"


def test_a_model_with_tendons_is_refused():
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body><joint name="a"/><geom size="0.1"/></body></worldbody>'
        '<tendon><fixed><joint joint="a" coef="1"/></fixed></tendon></mujoco>'
    )
    with pytest.raises(ValueError, match="tendons.*mode=startup"):
        DerivedConstants(model, None, 1, "cpu")
