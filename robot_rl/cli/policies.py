"""The trained policies that come with the project: a folder `policy` in the folder of their task."""

from pathlib import Path

from robot_rl.errors import UserError, suggest


def list_policies() -> dict[str, Path]:
    """Names of the committed bundles, and their directories."""
    from robot_rl_tasks import registry

    folder = Path(registry.__file__).parent
    return {path.parent.parent.name: path.parent for path in sorted(folder.glob("*/policy/contract.json"))}


def find_policy(name: str) -> Path:
    """The directory of a bundle.

    Args:
        name: The name of a committed bundle, or the path of any bundle.

    Raises:
        UserError: There is neither.
    """
    known = list_policies()
    if name in known:
        return known[name]
    if Path(name).is_dir():
        return Path(name)
    raise UserError(f"policy={name}: no such bundle, and no directory of that name; {suggest(name, known)}")
