"""Pages of the Python interface: which objects mkdocstrings describes, in which order."""

PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "python": (
        "Python functions",
        "`import robot_rl as rr` has these functions; [From Python](../../python.md) shows them in use.",
        tuple(
            f"robot_rl.api.{name}"
            for name in ("make", "train", "load", "evaluate", "play", "export", "Run", "Policy", "Robot")
        ),
    ),
    "env": (
        "Env",
        "`rr.make` and `make_env` return one; any learner that takes `rsl_rl.env.VecEnv` trains in it.",
        ("robot_rl_envs.make.make_env", "robot_rl_envs.env.Env", "robot_rl_envs.entity.state.State"),
    ),
    "task": (
        "Task",
        "A task is plain data: a robot, physics options and named terms. [A new task](../../new_task.md) writes one.",
        (
            *(f"robot_rl_envs.task.{name}" for name in ("Task", "Sim", "Actions", "ObservationGroup")),
            *("robot_rl_envs.agents.Agent", "robot_rl_envs.agents.Role", "robot_rl_envs.agents.Team"),
            *("robot_rl_envs.agents.Message", "robot_rl_envs.terrain.cfg.TerrainCfg"),
        ),
    ),
    "terms": (
        "Entries of terms",
        "A task lists terms as these entries, and a function becomes a term by a decorator. "
        "[A new reward](../../new_reward.md) writes one.",
        (
            *(f"robot_rl_envs.term_config.{name}" for name in ("Reward", "Observation", "Termination", "Command")),
            *(f"robot_rl_envs.term_config.{name}" for name in ("Event", "Curriculum", "Metric", "TorchTerm")),
            *(f"robot_rl_envs.terms.declare.{name}" for name in ("reward", "observation", "termination", "command")),
            *(f"robot_rl_envs.terms.declare.{name}" for name in ("event", "curriculum", "metric", "TermInfo")),
        ),
    ),
    "robot": (
        "Robot",
        "The facts of a robot. [A new robot](../../new_robot.md) writes them.",
        ("robot_rl_assets.robot.Robot", "robot_rl_assets.robot.Joint"),
    ),
    "learner": (
        "Learners",
        "An algorithm of your own is a class of settings and an `Algorithm` ([how](../../algorithms.md)).",
        ("robot_rl.learn.algorithm", "robot_rl.settings.learner.LearnerCfg"),
    ),
}


def pages() -> dict[str, str]:
    """Return the pages by their place in the site."""
    return {
        f"reference/api/{name}.md": "\n\n".join([f"# {title}", text, *(f"::: {one}" for one in objects)])
        for name, (title, text, objects) in PAGES.items()
    }
