"""The processes that other tests start by `start_python` are what `python` would have started."""

import json
import os
import signal
import sys

SAY = "import json, os, sys; print(json.dumps([sys.argv, os.getcwd(), os.environ.get('A')])); sys.exit(3)"


def test_words_folder_surroundings_and_exit_code(start_python, tmp_path):
    (tmp_path / "script.py").write_text(SAY)
    for words in (["-m", "script"], ["-c", SAY], [tmp_path / "script.py"]):
        process = start_python([*words, "b", "c"], cwd=tmp_path, env={**os.environ, "A": "1"})
        output, _ = process.communicate()
        argv, folder, value = json.loads(output)
        assert (argv[1:], folder, value, process.returncode) == (["b", "c"], str(tmp_path), "1", 3)


def test_nothing_of_this_repository_is_imported_before(start_python):
    output, _ = start_python(
        ["-c", "import sys; print(sorted(n for n in sys.modules if n.startswith('robot')))"]
    ).communicate()
    assert output == "[]\n"


def test_an_error_is_printed_on_the_same_pipe(start_python):
    process = start_python(["-c", "import sys; print('first'); raise ValueError('second')"])
    output, _ = process.communicate()
    assert output.startswith("first\n")
    assert "ValueError: second" in output
    assert process.returncode == 1


def test_signals_reach_it(start_python):
    wait = "import time; print('there'); time.sleep(100)"
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, -signal.SIGTERM)):
        process = start_python(["-c", wait], start_new_session=True)
        assert process.stdout.readline() == "there\n"
        assert os.getpgid(process.pid) == process.pid
        process.send_signal(number)
        process.communicate()
        assert process.returncode == code


def test_packages_named_by_pythonpath_come_first(start_python, tmp_path):
    (tmp_path / "robot_rl").mkdir()
    (tmp_path / "robot_rl" / "__init__.py").write_text("MINE = True\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = start_python(["-c", "import robot_rl; print(robot_rl.MINE)"], cwd=tmp_path.parent, env=environ)
    assert (process.communicate()[0], process.returncode) == ("True\n", 0)
    assert str(tmp_path) not in sys.path
