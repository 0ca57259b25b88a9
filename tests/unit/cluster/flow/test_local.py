"""The executor: what runs, what is not repeated, how it stops, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robot_rl.cluster.flow.dag import Flow, Gate, Output, Step, gate_step
from robot_rl.cluster.flow.figures import table_rows, write_results
from robot_rl.cluster.flow.local import Executor
from robot_rl.cluster.flow.state import DONE, FAILED, STOPPED, FlowState, flow_folder
from robot_rl.errors import UserError

PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def python(name, code, *words, after=(), codes=(0,), **outputs):
    """Return a step that runs a line of Python; its words are sys.argv[1:]."""
    paths = {key: Output(path=value) for key, value in outputs.items()}
    command = (sys.executable, "-c", f"import sys, os, json, time\n{code}", *words)
    return Step(name=name, command=command, after=after, outputs=paths, codes=codes)


COUNT = "open(sys.argv[1], 'a').write('x')"
"""Write one more sign into a file: how often a step ran."""


def run(*steps, jobs=1, state=None):
    flow = Flow(name="test", id="t1", steps=steps)
    state = FlowState(flow_folder("runs", "t1"), {"flow": "test", "options": []}) if state is None else state
    state.reached.clear()
    executor = Executor(flow, state, jobs=jobs)
    return executor, executor.run()


def loaded():
    return FlowState.load(flow_folder("runs", "t1"))


def states(state):
    return {name: row.state for name, row in state.steps.items()}


def test_a_step_gets_the_files_of_the_steps_before_it():
    one = python("one", "open(sys.argv[1], 'w').write('7')", "@{one.file}", file="a/one.txt")
    two = python("two", "print('it is', open(sys.argv[1]).read())", one["file"])
    executor, ending = run(two, one)
    assert (ending.code, ending.line) == (0, "")
    assert states(loaded()) == {"one": DONE, "two": DONE}
    assert loaded().steps["two"].line == "it is 7"
    assert "it is 7" in executor.state.log("two").read_text()


def test_what_is_done_is_not_repeated_and_what_changed_is():
    one = python("one", COUNT, "@{one.file}", file="one.txt")
    two = python("two", f"{COUNT}; open(sys.argv[2]).read()", "@{two.file}", one["file"], file="two.txt")
    run(one, two)
    executor, _ = run(one, two, state=loaded())
    assert (executor.kept, Path("two.txt").read_text()) == (["one", "two"], "x")
    Path("one.txt").write_text("other")  # Not what the step wrote: it runs again, and the one that reads it, too.
    executor, _ = run(one, two, state=loaded())
    assert (executor.kept, Path("one.txt").read_text(), Path("two.txt").read_text()) == ([], "otherx", "xx")
    changed = python("two", f"{COUNT}; open(sys.argv[2]).read(); 1", "@{two.file}", one["file"], file="two.txt")
    executor, _ = run(one, changed, state=loaded())
    assert (executor.kept, Path("two.txt").read_text()) == (["one"], "xxx")


def test_an_output_that_was_removed_is_made_again():
    one = python("one", COUNT, "@{one.file}", file="one.txt")
    run(one)
    Path("one.txt").unlink()
    executor, _ = run(one, state=loaded())
    assert executor.kept == []
    assert Path("one.txt").exists()


def test_a_directory_is_known_by_the_file_that_stands_for_it():
    code = "os.makedirs(sys.argv[1], exist_ok=True); open(sys.argv[1] + '/proof', 'a').write('x')"
    one = Step(
        name="one",
        command=(sys.executable, "-c", f"import os, sys; {code}", "@{one.run}"),
        outputs={"run": Output(path="run", proof="proof")},
    )
    run(one)
    Path("run/other").write_text("of another command")
    executor, _ = run(one, state=loaded())
    assert executor.kept == ["one"]
    Path("run/proof").write_text("changed")
    executor, _ = run(one, state=loaded())
    assert executor.kept == []


def test_a_directory_is_known_by_the_contents_of_its_files():
    code = "os.makedirs(sys.argv[1] + '/a', exist_ok=True); open(sys.argv[1] + '/a/one', 'w').write('first')"
    one = python("one", code, "@{one.all}", all="out")
    run(one)
    executor, _ = run(one, state=loaded())
    assert executor.kept == ["one"]
    Path("out/a/one").write_text("other")  # As long as what the step wrote.
    executor, _ = run(one, state=loaded())
    assert (executor.kept, Path("out/a/one").read_text()) == ([], "first")


@pytest.mark.parametrize("made", ["one.txt", "out"])
def test_a_step_is_not_done_by_what_an_earlier_try_wrote(made):
    write = "os.makedirs('out', exist_ok=True); [open(name, 'w').write('1') for name in ('one.txt', 'out/a')]"
    run(python("one", f"{write}; sys.exit(1)", file=made))
    _, ending = run(python("one", "pass", file=made), state=loaded())
    assert (ending.code, f"did not write {made}" in ending.line) == (1, True)
    assert run(python("one", write, file=made), state=loaded())[1].code == 0


def test_a_failed_step_stops_the_flow_with_its_code_and_last_line():
    one = python("one", "print('robot-rl: no such thing', file=sys.stderr); sys.exit(74)")
    executor, ending = run(one, python("two", "pass", after=("one",)))
    assert ending.code == 74
    assert ending.line.startswith("step one: ended with exit code 74: no such thing; see ")
    assert states(loaded()) == {"one": FAILED, "two": "waiting"}
    assert executor.state.state == FAILED


def test_a_step_that_does_not_write_its_output_has_failed():
    _, ending = run(python("one", "pass", file="one.txt"))
    assert ending.code == 1
    assert "step one: did not write one.txt" in ending.line


def test_a_code_can_be_allowed_but_not_with_the_file_of_an_earlier_try():
    wrote = python("one", "open('one.txt', 'w').write('1'); sys.exit(1)", codes=(0, 1), file="one.txt")
    assert run(wrote)[1].code == 0
    _, ending = run(python("one", "print('a fault'); sys.exit(1)", codes=(0, 1), file="one.txt"), state=loaded())
    assert ending.code == 1
    assert "a fault" in ending.line


def test_a_failed_gate_stops_it_and_is_named_with_its_figure():
    one = python("one", "json.dump({'error': 0.3}, open(sys.argv[1], 'w'))", "@{one.figures}", figures="one.json")
    gate = gate_step(one, "figures", [Gate(name="error", path="error", bound=0.2, text="an error [m]")])
    last = python("last", "open('last.txt', 'w')", after=("gate_one",))
    executor, ending = run(one, gate, last)
    assert ending.code == 1
    assert ending.line == "gate one.error FAILED: error is 0.3, must be at most 0.2 (one.json)"
    assert not Path("last.txt").exists()
    assert table_rows(executor.flow, executor.state)[1][2:] == (FAILED, _seconds(executor), "error 0.3 <= 0.2  FAILED")
    loose = gate_step(one, "figures", [Gate(name="error", path="error", bound=0.4)])
    executor, ending = run(one, loose, last, state=loaded())
    assert (ending.code, executor.kept) == (0, ["one"])


def _seconds(executor):
    return f"{executor.state.steps['gate_one'].seconds:.1f}"


def test_results_have_every_figure_and_a_page_that_links_the_report():
    one = python("one", "json.dump({'error': 0.1}, open(sys.argv[1], 'w'))", "@{one.figures}", figures="one.json")
    gate = gate_step(one, "figures", [Gate(name="error", path="error", bound=0.2, text="an <error> | [m]")])
    Path("report.html").write_text("page")
    flow = Flow(name="test", id="t1", steps=(one, gate), notes=("a note",), links={"report": "report.html"})
    executor = Executor(flow, FlowState(flow_folder("runs", "t1"), {"flow": "test", "options": []}))
    executor.run()
    as_json, markdown, page = (path.read_text() for path in write_results(flow, executor.state))
    figures = json.loads(as_json)
    assert figures["gates"][0] | {"text": ""} == {
        "name": "one.error",
        "text": "",
        "file": "one.json",
        "path": "error",
        "value": 0.1,
        "op": "<=",
        "bound": 0.2,
        "holds": True,
    }
    assert [step["state"] for step in figures["steps"]] == [DONE, DONE]
    assert "| one.error | an <error> / [m] | 0.1 | <= 0.2 | passed |" in markdown
    assert "(../../../report.html)" in markdown
    assert '<a href="../../../report.html">report</a>' in page
    assert "an &lt;error&gt;" in page


def test_steps_run_at_the_same_time_where_the_graph_and_jobs_allow():
    meet = (
        "open(sys.argv[1], 'w'); end = time.time() + 20\n"
        "while not os.path.exists(sys.argv[2]) and time.time() < end: time.sleep(0.01)\n"
        "sys.exit(not os.path.exists(sys.argv[2]))"
    )
    _, ending = run(python("a", meet, "a.txt", "b.txt"), python("b", meet, "b.txt", "a.txt"), jobs=2)
    assert ending.code == 0


def test_a_failure_ends_the_steps_that_still_run():
    wait = python("wait", "open('started', 'w'); time.sleep(60)")
    fail = python(
        "fail",
        "end = time.time() + 20\nwhile not os.path.exists('started') and time.time() < end: time.sleep(0.01)\n1/0",
    )
    began = time.monotonic()
    _, ending = run(wait, fail, jobs=2)
    assert time.monotonic() - began < PATIENCE_S
    assert ending.code == 1
    assert "ZeroDivisionError" in ending.line
    assert states(loaded()) == {"wait": STOPPED, "fail": FAILED}


PROGRAM = """
import sys
from robot_rl.cluster.flow.dag import Flow, Output, Step
from robot_rl.cluster.flow.local import Executor
from robot_rl.cluster.flow.state import FlowState, flow_folder
SAVE = '''
import os, signal, sys, time
def stop(number, frame):
    open("saved", "w").write(str(number))
    sys.exit(130 if number == signal.SIGINT else 85)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
open("pid", "w").write(str(os.getpid()))
while not os.path.exists("go"): time.sleep(0.01)
'''
one = Step(name="one", command=(sys.executable, "-c", "open('one.txt', 'a').write('x')"),
           outputs={"file": Output(path="one.txt")})
two = Step(name="two", command=(sys.executable, "-c", SAVE), after=("one",))
flow = Flow(name="test", id="t1", steps=(one, two))
folder = flow_folder("runs", "t1")
state = FlowState.load(folder) if (folder / "state.json").exists() else FlowState(folder, {"flow": "t", "options": []})
state.acquire()
print("ready", flush=True)
ending = Executor(flow, state).run()
print(ending.line)
sys.exit(ending.code)
"""


def start(program=PROGRAM):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=env)


def wait_for(check):
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


def has_content(name):
    return Path(name).exists() and bool(Path(name).read_text())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 85)])
def test_a_signal_is_passed_on_and_the_step_saves(number, code):
    with start() as process:
        wait_for(lambda: has_content("pid"))
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert f"interrupted by {number.name}; resume with: robot-rl flow resume t1" in out
    assert Path("saved").read_text() == str(int(number))
    state = loaded()
    assert states(state) == {"one": DONE, "two": STOPPED}
    assert (state.state, state.steps["two"].code) == (STOPPED, code)


STUBBORN = PROGRAM.replace("sys.exit(130 if number == signal.SIGINT else 85)", "signal.signal(number, signal.SIG_DFL)")


def test_a_second_signal_is_passed_on_too():
    with start(STUBBORN) as process:
        wait_for(lambda: has_content("pid"))
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: has_content("saved"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 85
    assert loaded().steps["two"].code == -signal.SIGTERM


def test_a_killed_flow_leaves_nothing_running_and_goes_on_without_repeating():
    with start() as process:
        wait_for(lambda: has_content("pid"))
        process.kill()
        process.wait(PATIENCE_S)
    wait_for(lambda: has_content("saved"))  # The step got SIGTERM because its parent died.
    assert states(loaded()) == {"one": DONE, "two": "running"}
    Path("go").touch()
    with start() as process:
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert Path("one.txt").read_text() == "x"
    assert {name: row.runs for name, row in loaded().steps.items()} == {"one": 1, "two": 2}


def test_a_second_process_of_the_same_flow_is_refused():
    state = FlowState(flow_folder("runs", "t1"), {"flow": "t", "options": []})
    state.acquire()
    with pytest.raises(UserError, match="id=t1: another process runs this flow"):
        FlowState(flow_folder("runs", "t1"), {"flow": "t", "options": []}).acquire()
    state.release()


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 1}', '{"version": 9}'])
def test_a_damaged_state_is_refused_in_one_line(content):
    folder = flow_folder("runs", "t1")
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(content)
    with pytest.raises(UserError, match=r"state\.json"):
        FlowState.load(folder)
