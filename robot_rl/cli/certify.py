"""Certify a policy: how far robot, ground and delay may be from the model before it fails.

usage: robot-rl certify policy=<bundle or shipped name> [key=value ...]
       robot-rl certify run=<id> [key=value ...]

{Options}

Many worlds step at once, each with other values. Each property is varied by itself from the model's value outwards,
the weakest ones in pairs, and a search finds the worst corner of the task's own ranges. The result is certificate.json
in the bundle, named in its SHA256SUMS, and a page. A signature of the bundle is removed: sign it again. For a policy
that comes with the project, the file is written to the working folder. The same seed and budget give the same bits.

  robot-rl certify run=latest budget=2000
  robot-rl certify policy=go2_flat identified=LOG.identified.json
  robot-rl certify policy=go2_flat model=go2.xml engines=mujoco,mujoco_warp
  robot-rl flow gate runs/go2_flat/<id>/policy/certificate.json 'delay:parameters.delay.high.value>=0.02'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import MAX_COUNT, MAX_SEED, PolicyOptions, option, read
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.runs.policies import PolicySource


LEAST_EPISODES, LEAST_S = 100, 10


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl certify."""

    task: str = option("", "the task that the policy has to be for")
    budget: str = option("4000", "about so many episodes in all; or seconds, such as 120s, of which the figures depend")
    worlds: int = option(0, "worlds that step at once; 0: by the budget", least=0, most=100_000)
    seconds: float = option(5.0, "length of an episode [s], at most the task's own", least=0.1, most=3600.0)
    success: float = option(0.9, "least share of episodes that do not fail", least=0.01, most=1.0)
    engine: str = option("", "another engine than it was trained in: mujoco or mujoco_warp")
    engines: str = option("", "engines to compare, such as mujoco,mujoco_warp")
    model: str = option("", "other models of the robot to compare, files of MJCF")
    identified: str = option("", "a file of robot-rl identify: which of its values the policy bears")
    seed: int | None = option(None, "seed of the worlds; by default one that no training uses", least=0, most=MAX_SEED)
    out: str = option("", "file for the certificate instead of the bundle")


def run(arguments: Sequence[str]) -> int:
    """Certify, write the certificate and its page, print its lines."""
    options, changes = read(Options, arguments)
    from robot_rl.certify.certificate import compare, describe, to_text
    from robot_rl.certify.certify import CertifyCfg, certify, check_task
    from robot_rl.certify.page import render_page
    from robot_rl.certify.suite import check_engines, run_suite
    from robot_rl.evaluation import EVALUATION_SEED
    from robot_rl.files import write_atomic
    from robot_rl.identify.result import Identified

    engines, models = _words(options.engines), [Path(name) for name in _words(options.model)]
    check_engines(engines)
    options.refuse_unsupported("certify")
    policy = options.find_policy(changes | ({"engine": options.engine} if options.engine else {}))
    check_task(policy, options.task, models)
    found = Identified.read(options.identified) if options.identified else None
    robot = policy.cfg.task.robot
    if found is not None:
        compare({"parameters": {}}, found, robot)
    bundle = policy.find_bundle()
    out, page = _places(policy, bundle, options.out, is_changed=bool(changes))
    seed = EVALUATION_SEED if options.seed is None else options.seed
    settings = {name: getattr(options, name) for name in ("worlds", "seconds", "success")}
    cfg = CertifyCfg(seed=seed, **_budget(options.budget), **settings)

    def say(line: str) -> None:
        print(line, flush=True)

    figures = certify(policy.cfg, bundle, cfg, say) | run_suite(policy, cfg, engines, models, say)
    content = describe(policy, bundle, cfg, figures)
    if found is not None:
        content = describe(policy, bundle, cfg, figures | {"identified": compare(content, found, robot)})
    text = to_text(content)
    if out is None:
        from robot_rl_deploy.bundle import SIGNATURE, add_certificate

        was_signed = (bundle / SIGNATURE).exists()
        add_certificate(bundle, text.encode())
        if was_signed:
            say(f"{bundle}: its signature is removed, since it did not cover the certificate; robot-rl sign signs it")
    else:
        write_atomic(out, text)
    write_atomic(page, render_page(content))
    say("\n".join(content["lines"]))
    say(f"{out or bundle / 'certificate.json'}\n{page}")
    return 0


def _places(policy: "PolicySource", bundle: Path, out: str, *, is_changed: bool) -> tuple[Path | None, Path]:
    """Return the file of the certificate, None for the bundle itself, and the file of the page; both are checked."""
    from robot_rl.runs.outputs import CERTIFICATE, PAGE, check_output
    from robot_rl.runs.policies import list_policies

    is_shipped = policy.bundle is not None and bundle.resolve() in [path.resolve() for path in list_policies().values()]
    if is_changed and not out:
        raise UserError("out: is missing; a certificate with changed settings is not that of the bundle, name a file")
    if not out and is_shipped:
        out = f"{policy.cfg.task.name}.certificate.json"
    if out:
        path = check_output("out", out, CERTIFICATE)
        return path, check_output("out", str(path.with_suffix(".html")), PAGE)
    place = bundle.parent / ("certificate.html" if policy.is_run else f"{bundle.name}.certificate.html")
    return None, check_output("out", str(place), PAGE)


def _budget(text: str) -> dict[str, Any]:
    """Return the episodes or the time [s] of a budget as a setting of `CertifyCfg`."""
    number, is_time = text.removesuffix("s"), text.endswith("s")
    least = LEAST_S if is_time else LEAST_EPISODES
    if not number.isdigit() or not least <= int(number) <= MAX_COUNT:
        raise UserError("budget", text, f"must be episodes, {LEAST_EPISODES} or more, or seconds such as 120s")
    return {"limit_s": float(number)} if is_time else {"budget": int(number)}


def _words(text: str) -> list[str]:
    return [word for word in text.strip("[]()").split(",") if word]
