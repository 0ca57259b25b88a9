"""Settings of every run that are neither the task's nor the learner's."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.settings.schema import check_fields, setting
from robot_rl.settings.words import MAX_ENVS, MAX_SEED

MAX_THREADS = 4096


@dataclass(kw_only=True, slots=True)
class RunCfg:
    """Settings of a run, as given by name.

    Attributes:
        seed: seed of every random stream; the same seed gives the same bits on a CPU
        num_envs: worlds in parallel; the task specifies how many suit a CPU or a GPU
        device: auto, cpu, cuda or cuda:<index>
        engine: mujoco (CPU, all cores), mujoco_warp (GPU), isaac, or auto: as suits the device
        learner: ppo, mappo (teams), distill (imitate teacher.run), flashsac, world_model (through imagined steps),
            rsl_rl (its runner on the same environment), or your own, <module>:<Class> (docs/algorithms.md)
        init_from: a run to copy the initial weights from (fine-tuning)
        root: folder of the runs
        num_threads: threads of the CPU engine; 0 takes all cores
        run_id: a name for the run; an existing run of that name is continued (for clusters that requeue)
        learner_threads: threads of the learner on a CPU; 0 takes OMP_NUM_THREADS, or half of the cores
        kernels: folder of compiled kernels for a GPU, from robot-rl compile
    """

    seed: int = setting(1, least=0, most=MAX_SEED)
    num_envs: int | None = setting(None, least=1, most=MAX_ENVS)
    device: str = "auto"
    engine: str = "auto"
    learner: str = "ppo"
    init_from: str | None = None
    root: str = "runs"
    num_threads: int = setting(0, least=0, most=MAX_THREADS)
    run_id: str | None = None
    learner_threads: int = setting(0, least=0, most=MAX_THREADS)
    kernels: str = ""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
