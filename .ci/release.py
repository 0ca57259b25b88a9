"""Build what is published of a commit into dist/.

    make release URL=https://<host>/<owner>/robot-rl [KERNELS="go2_flat g1_flat"]

Three distributions: robot-rl, robot-rl-deploy (bundles on a robot's computer, without PyTorch) and the sources of
robot-rl-runtime (the binary). It also writes the section of the changelog, a cache of GPU kernels, and the hashes of
all files. Links of the READMEs lead to URL at the tag v<version>; the slim distribution is installed and checks a
bundle.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROJECTS = (".", "deploy_jetson", "deploy_jetson/runtime")
FORMS: dict[str, list[str]] = {"deploy_jetson/runtime": ["--sdist"]}
"""What is built of a project; by default sources and wheel. The wheel of the binary is built on the robot."""
ARCHS = "sm_90,sm_110"
LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def absolute(text: str, folder: str, url: str, tag: str) -> str:
    """Return a README of a folder of the repository with links that work elsewhere."""

    def replace(match: re.Match[str]) -> str:
        path = (ROOT / folder / match[2]).resolve()
        if not path.exists():
            raise SystemExit(f"{folder}/README.md: links to {match[2]}, which does not exist")
        kind = "raw" if match[1].startswith("!") else "tree" if path.is_dir() else "blob"
        return f"{match[1]}{url}/{kind}/{tag}/{path.relative_to(ROOT)}"

    return LINK.sub(replace, text)


def section(changelog: str, version: str) -> str:
    """Return a version's section of the changelog, which begins with its highlights."""
    found = re.search(rf"^## {re.escape(version)}\n+(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].startswith("### Highlights\n"):
        raise SystemExit(f"CHANGELOG.md: needs a section '## {version}' that begins with '### Highlights'")
    return found[1].strip() + "\n"


def versions() -> dict[str, str]:
    """Return each file's version."""
    found = {f"{one}/pyproject.toml": tomllib.loads((ROOT / one / "pyproject.toml").read_text()) for one in PROJECTS}
    known = {name: data["project"]["version"] for name, data in found.items()}
    for name, pattern in (("robot_rl/__init__.py", r'^__version__ = "(.*)"'), ("CITATION.cff", r"^version: (.*)")):
        match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        known[name] = match[1] if match else ""
    return known


def stage(folder: Path, url: str, version: str) -> None:
    """Put the committed files into a folder, with absolute links and the project's addresses."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True)
    tag = f"v{version}"
    pages = {"Homepage": url, "Documentation": f"{url}/blob/{tag}/docs/index.md", "Source": url}
    pages |= {"Issues": f"{url}/issues", "Changelog": f"{url}/blob/{tag}/CHANGELOG.md"}
    lines = "".join(f'{name} = "{page}"\n' for name, page in pages.items())
    for one in PROJECTS:
        readme, project = folder / one / "README.md", folder / one / "pyproject.toml"
        readme.write_text(absolute(readme.read_text(), one, url, tag))
        project.write_text(project.read_text() + f"\n[project.urls]\n{lines}")


def check_slim(wheel: Path) -> None:
    """Install only the slim distribution and check a shipped bundle with it."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([sys.executable, "-m", "venv", name], check=True)
        python = f"{name}/bin/python"
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "-c", "constraints.txt", str(wheel)], cwd=ROOT, check=True
        )
        bundle = ROOT / "tasks/robot_rl_tasks/go2_flat/policy"
        subprocess.run([f"{name}/bin/robot-rl-bundle", str(bundle)], cwd=name, check=True)
        missing = "import importlib.util as u; assert not any(map(u.find_spec, ('torch', 'mujoco', 'robot_rl')))"
        subprocess.run([python, "-I", "-c", missing], cwd=name, check=True)


def write_kernels(tasks: str, version: str) -> None:
    """Compile the tasks' kernels for GPUs that are not here, into one archive."""
    with tempfile.TemporaryDirectory() as name:
        for task in tasks.split():
            words = ["compile", f"task={task}", f"arch={ARCHS}", f"out={name}/kernels"]
            subprocess.run([sys.executable, "-m", "robot_rl.cli.main", *words], cwd=ROOT, check=True)
        with tarfile.open(DIST / f"kernels-{version}.tar.gz", "w:gz") as archive:
            archive.add(f"{name}/kernels", "kernels")


def main() -> int:
    """Build, check and list everything."""
    url, tasks = sys.argv[1].rstrip("/"), sys.argv[2] if len(sys.argv) > 2 else ""
    if not url.startswith("https://"):
        raise SystemExit("URL: must be the repository's address, such as https://example.org/owner/robot-rl")
    known = versions()
    if len(set(known.values())) > 1:
        raise SystemExit(f"the versions differ: {known}")
    version = known["CITATION.cff"]
    notes = section((ROOT / "CHANGELOG.md").read_text(), version)
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout:
        print("note: changes that are not committed are not part of the release")
    DIST.mkdir(exist_ok=True)
    for old in DIST.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as name:
        stage(Path(name), url, version)
        for one in PROJECTS:
            words = ["-m", "build", "--outdir", str(DIST), *FORMS.get(one, []), str(Path(name) / one)]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    built = sorted(map(str, DIST.glob("*robot_rl*")))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True)
    check_slim(next(DIST.glob("robot_rl_deploy-*.whl")))
    (DIST / f"notes-{version}.md").write_text(notes)
    if tasks:
        write_kernels(tasks, version)
    files = sorted(DIST.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums)
    for path in files:
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
