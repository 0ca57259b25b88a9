"""The graph of a flow: what is refused when it is made, its order, and bounds of gates."""

import pytest

from robot_rl.cluster.flow.dag import Flow, Gate, Output, Resources, Step, gate_step
from robot_rl.errors import UserError


def step(name, *words, after=(), **outputs):
    paths = {key: Output(path=value) for key, value in outputs.items()}
    return Step(name=name, command=("true", *words), after=after, outputs=paths)


def flow(*steps):
    return Flow(name="test", id="t1", steps=steps)


def test_a_reference_becomes_a_path_and_makes_the_step_wait():
    one = step("one", figures="a/b.json")
    two = step("two", f"file={one['figures']}", "out=@{two.page}", page="p.html")
    graph = flow(two, one)
    assert two.needs() == ("one",)
    assert [each.name for each in graph.order()] == ["one", "two"]
    assert graph.words(two) == ["true", "file=a/b.json", "out=p.html"]
    assert graph.words(two, "/w/") == ["true", "file=/w/a/b.json", "out=/w/p.html"]


def test_steps_that_may_run_together_keep_their_order():
    graph = flow(step("a"), step("z", after=("a",)), step("b", after=("z",)), step("c", after=("a",)))
    assert [each.name for each in graph.order()] == ["a", "z", "b", "c"]


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        ((), "does not have any steps"),
        ((step("a"), step("a")), "step a: is there twice"),
        ((step("A b"),), "must be a letter"),
        ((Step(name="a", command=()),), "does not have a command"),
        ((step("train"), step("b", after=("trian",))), "did you mean 'train'"),
        ((step("a", after=("a",)),), "comes after itself"),
        ((step("a", "@{nobody.file}"),), "which is not a step"),
        ((step("a", figures="f"), step("b", "@{a.figure}")), "did you mean 'figures'"),
        ((step("a", after=("b",)), step("b", after=("c",)), step("c", after=("a",))), "its steps wait for each other"),
    ],
)
def test_what_is_no_graph_is_refused_in_one_line(steps, line):
    with pytest.raises(UserError, match=line):
        flow(*steps)


def test_a_cycle_through_references_is_refused():
    with pytest.raises(UserError, match=r"a -> b -> a|b -> a -> b"):
        flow(step("a", "@{b.x}", x="1"), step("b", "@{a.x}", x="2"))


def test_an_output_that_there_is_not_is_refused_by_its_name():
    with pytest.raises(UserError, match="does not have an output 'figure'; did you mean 'figures'"):
        step("a", figures="f")["figure"]


def gated():
    gates = [Gate(name="error", path="e", bound=1.0), Gate(name="rate", path="r", bound=0.5, op=">=")]
    one, two = step("one", figures="one.json"), step("two", figures="two.json")
    return flow(one, two, gate_step(one, "figures", gates), gate_step(two, "figures", gates[:1]))


def test_a_step_of_gates_is_a_command():
    graph = gated()
    words = graph.words(graph["gate_one"])
    assert words == ["robot-rl", "flow", "gate", "one.json", "one.error:e<=1.0", "one.rate:r>=0.5"]


def test_a_bound_is_set_in_every_step_or_in_one():
    graph = gated().with_bounds({"error": 0.2, "two.error": 0.3})
    assert graph.words(graph["gate_one"])[4] == "one.error:e<=0.2"
    assert graph.words(graph["gate_two"])[4] == "two.error:e<=0.3"
    assert graph["gate_one"].gates[1].bound == 0.5


def test_an_unknown_gate_is_refused():
    with pytest.raises(UserError, match=r"gates\.eror: is not a gate of test; did you mean 'error'"):
        gated().with_bounds({"eror": 1.0})


@pytest.mark.parametrize("wrong", [{"cpus": 0}, {"gpus": -1}, {"memory_gb": 0}, {"minutes": 0}])
def test_resources_have_ranges(wrong):
    with pytest.raises(ValueError, match="must be at least"):
        Resources(**wrong)
