"""What a process of the fixture `start_python` does: it becomes `python <words>`, with what was imported before it.

Run by path with the request in its globals, for a folder of tests is no package.
"""

import io
import os
import runpy
import sys


def take_streams(descriptor: int) -> None:
    """Let standard output and error be a pipe, line by line."""
    for number in (1, 2):
        os.dup2(descriptor, number)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), line_buffering=True) for number in (1, 2)
    )


def run_python(words: list[str]) -> None:
    """Do what `python <words>` does, for `-m MODULE ...`, `-c CODE ...` and `SCRIPT ...`."""
    how, *rest = words
    if how == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(how)))
        sys.argv = words
        runpy.run_path(how, run_name="__main__")


def main(words: list[str], writer, cwd: str, environ: dict[str, str], new_session: bool) -> None:
    if new_session:
        os.setsid()
    take_streams(writer.fileno())
    writer.close()
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    if "OMP_NUM_THREADS" in environ:  # Read when torch was loaded, which was before.
        sys.modules["torch"].set_num_threads(int(environ["OMP_NUM_THREADS"]))
    sys.path[:0] = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    run_python(words)


if __name__ == "forked":
    main(*REQUEST)  # noqa: F821
