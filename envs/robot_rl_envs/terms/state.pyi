"""Fields of ``s``, written by tests/unit/envs/test_state_type.py from tables of robot_rl_envs.entity.state.

A row is a world (N of them; of a team a robot): ``s.joint_pos[i, j]``. Suffix ``_w``: world frame, ``_b``: base frame.
"""

from typing import Any, Generic, TypeVar

T = TypeVar("T")
Vec3 = Vec4 = Any  # Vectors of Warp: its functions are not typed for them.

class Array1(Generic[T]):
    shape: tuple[int]
    def __getitem__(self, at: int) -> T: ...
    def __setitem__(self, at: int, value: T) -> None: ...

class Array2(Generic[T]):
    shape: tuple[int, int]
    def __getitem__(self, at: tuple[int, int]) -> T: ...
    def __setitem__(self, at: tuple[int, int], value: T) -> None: ...

class State:
    step_dt: float
    """control period [s]"""
    def __getattr__(self, name: str) -> Any:
        """Fields that terms, sensors and events of the task add: commands, references, MuJoCo's model."""
    base_pos_w: Array1[Vec3]
    """(N,) position of the base's origin [m]"""
    base_quat_wxyz: Array1[Vec4]
    """(N,) orientation of the base"""
    base_lin_vel_w: Array1[Vec3]
    """(N,) velocity of the base's origin [m/s]"""
    base_lin_vel_b: Array1[Vec3]
    """(N,) the same in the base frame [m/s]"""
    base_ang_vel_b: Array1[Vec3]
    """(N,) angular velocity in the base frame [rad/s]"""
    projected_gravity_b: Array1[Vec3]
    """(N,) unit gravity direction in the base frame"""
    joint_pos: Array2[float]
    """(N, nj) joint positions [rad or m]"""
    joint_vel: Array2[float]
    """(N, nj) joint velocities [rad/s or m/s]"""
    last_joint_vel: Array2[float]
    """(N, nj) joint velocities one control step ago"""
    joint_torque: Array2[float]
    """(N, nj) actuator force of the last substep [N m or N]; 0 for passive joints"""
    action: Array2[float]
    """(N, na) last raw action"""
    prev_action: Array2[float]
    """(N, na) raw action one step before"""
    prev_prev_action: Array2[float]
    """(N, na) raw action two steps before"""
    foot_pos_w: Array2[Vec3]
    """(N, nf) center of each foot [m]"""
    foot_vel_w: Array2[Vec3]
    """(N, nf) velocity of each foot's center [m/s]"""
    foot_height_w: Array2[float]
    """(N, nf) clearance of each foot's sole above the ground under it [m]"""
    foot_peak_height_w: Array2[float]
    """(N, nf) largest clearance since the foot lifted off [m]"""
    foot_contact: Array2[float]
    """(N, nf) 1 if the foot touches the ground"""
    foot_force: Array2[float]
    """(N, nf) magnitude of the net contact force of the last substep [N]"""
    foot_air_time_s: Array2[float]
    """(N, nf) time since the foot lifted off; at touchdown the whole swing's [s]"""
    foot_contact_time_s: Array2[float]
    """(N, nf) time since the foot touched down [s]"""
    foot_touchdown: Array2[float]
    """(N, nf) 1 in the step in which the foot touches down"""
    terrain_level: Array1[int]
    """(N,) row of the terrain the world starts on: its difficulty"""
    terrain_column: Array1[int]
    """(N,) column of the terrain the world starts on: its kind"""
    env_origin_w: Array1[Vec3]
    """(N,) start of the world's robot: the ground below its default pose [m]"""
    command_range: Array1[float]
    """(N,) growth of the commands' range: 0 at first, 1 the full range"""
    command_left_s: Array2[float]
    """(N, nc) time until each command is drawn again [s]"""
    command_hold: Array1[int]
    """(N,) 1: commands are held by hand, nothing draws them"""
    interval_left_s: Array2[float]
    """(N, ni) time until each interval event [s]"""
    episode_length: Array1[int]
    """(N,) control steps towards the time limit"""
    step_count: Array1[int]
    """(N,) control steps since the last reset"""
    counter: Array1[int]
    """(N,) control steps ever: the counter of the random streams"""
    dirty: Array1[int]
    """(N,) fields written since the last step; bits of robot_rl_envs.engine"""
    terminated: Array1[int]
    """(N,) 1 if the episode ended by a failure"""
    time_out: Array1[int]
    """(N,) 1 if it ended by its time"""
    quarantined: Array1[int]
    """(N,) why this step quarantined the world: FAULT_* bits of robot_rl_envs.engine, 0 if not"""
    fault_term: Array1[int]
    """(N,) index of the reward or observation term that was not finite in this step, else -1"""
    reward: Array1[float]
    """(N,) this step's reward"""
    episode_return: Array1[float]
    """(N,) sum of rewards of the running episode"""
    reward_sums: Array2[float]
    """(N, nr) sum of each reward term since the metrics were last read"""
    metric_values: Array2[float]
    """(N, nm) each metric after this step's physics; the last known where quarantined"""
    termination_bits: Array1[int]
    """(N,) the task's terminations that held in this step: 1 << k for the k-th"""
    qpos: Array2[float]
    """(N, nq) MuJoCo's positions [rad or m]; quaternions of free joints in the world frame"""
    qvel: Array2[float]
    """(N, nv) MuJoCo's velocities [rad/s or m/s]"""
    ctrl: Array2[float]
    """(N, nu) MuJoCo's controls: the targets or efforts of the actuators"""
    sensordata: Array2[float]
    """(N, nsensordata) MuJoCo's sensors, each with its own unit and frame"""
    actuator_force: Array2[float]
    """(N, nu) forces of the actuators [N or N m]"""
    command: Array1[Any]
    """(N,) the command: component k is command[i][k], with the unit and frame that its term declares"""
    object_pos_w: Array2[Vec3]
    """(N, no) position [m] of each object, world frame"""
    object_quat_wxyz: Array2[Vec4]
    """(N, no) orientation of each object, world frame"""
    object_lin_vel_w: Array2[Vec3]
    """(N, no) velocity [m/s] of each object, world frame"""
    object_ang_vel_w: Array2[Vec3]
    """(N, no) angular velocity [rad/s] of each object, world frame"""
    site_pos_w: Array2[Vec3]
    """(N, ns) position [m] of each site that a term names, world frame"""
    site_quat_wxyz: Array2[Vec4]
    """(N, ns) orientation of each site that a term names, world frame"""
    site_lin_vel_w: Array2[Vec3]
    """(N, ns) velocity [m/s] of each site that a term names, world frame"""
    site_ang_vel_w: Array2[Vec3]
    """(N, ns) angular velocity [rad/s] of each site that a term names, world frame"""
    object_joint_pos: Array2[float]
    """(N, noj) joint positions of the objects [rad or m]"""
    object_joint_vel: Array2[float]
    """(N, noj) joint velocities of the objects [rad/s or m/s]"""
    contact_force: Array2[float]
    """(N, nk) force of each contact that a term names [N]"""
    measured: Array2[float]
    """(N, nms) values of the terms with measured=, in their units and frames"""
    height_scan: Array2[float]
    """(N, npoint) height of the base above the ground at each point of the scan [m]"""
    imu_acc: Array1[Vec3]
    """(N,) the accelerometer's value [m/s^2], frame of the IMU"""
    foot_forces: Array2[float]
    """(N, nff) force of each foot in the last substeps, substep by substep [N]"""
    joint_target: Array2[float]
    """(N, na) target of each explicit actuator [rad or m]"""
    kp: Array2[float]
    """(N, na) stiffness of each explicit actuator [N m/rad or N/m]"""
    kd: Array2[float]
    """(N, na) damping of each explicit actuator [N m s/rad or N s/m]"""
    strength: Array2[float]
    """(N, na) factor of the torque of each explicit actuator"""
    delay_steps: Array1[int]
    """(N,) delay of the actuators [substeps]"""
    motion_id: Array1[int]
    """(N,) the reference motion of the world"""
    motion_start: Array1[int]
    """(N,) frame of it that the episode began with"""
    active: Array1[int]
    """(N,) of a team: 1 if the robot takes part"""
    acted: Array1[int]
    """(N,) of a team: 1 if it did in this step"""
    start_pos_w: Array1[Vec3]
    """(N,) of a team: the robot's start [m]"""
    start_yaw: Array1[float]
    """(N,) of a team: the robot's heading at its start [rad], world frame"""
    team_pos_w: Array2[Vec3]
    """(N, nt) position of the base of each robot of the world [m]"""
    team_quat_wxyz: Array2[Vec4]
    """(N, nt) its orientation"""
    team_lin_vel_w: Array2[Vec3]
    """(N, nt) its velocity [m/s]"""
    team_ang_vel_b: Array2[Vec3]
    """(N, nt) its angular velocity, in its base's frame [rad/s]"""
    team_active: Array2[int]
    """(N, nt) 1 if it takes part"""
    default_joint_pos: Array1[float]
    """(nj,) default pose [rad or m]"""
    joint_lower: Array1[float]
    """(nj,) lower limits"""
    joint_upper: Array1[float]
    """(nj,) upper limits"""
    effort_limit: Array1[float]
    """(nj,) effort limits"""
    velocity_limit: Array1[float]
    """(nj,) velocity limits [rad/s or m/s]"""
    default_qpos: Array1[float]
    """(nq,) standing pose of the whole model"""
    joint_qpos: Array1[int]
    """(nj,) address in qpos"""
    joint_dof: Array1[int]
    """(nj,) address in qvel"""
    joint_ctrl: Array1[int]
    """(nj,) index in ctrl, -1 passive"""
    joint_follows: Array1[Vec3]
    """(nj,) the joint that it follows by an equality of the model (-1: none), factor and offset"""
    foot_geoms: Array1[int]
    """(nf,) geom ids"""
    foot_phase: Array1[float]
    """(nf,) phase of each foot in an alternating gait: 0, or 0.5 for half a period later"""
    terrain_heights: Array2[float]
    """(ny, nx) height map [m]; (1, 1) on an endless plane"""
    terrain_origins: Array2[Vec3]
    """(rows, columns) a robot's start on each tile [m]"""
