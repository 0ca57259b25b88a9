"""Typing errors in a manifest are found: each key misspelled in several ways, values of another type, wrong names."""

import copy

import pytest

from robot_rl.cluster.manifests.validate import validate, validate_documents
from tests.unit.cluster.manifests.cases import TARGETS, documents, of_kind, render

KUBERNETES = [target for target in TARGETS if target != "sbatch"]


def paths(value, path=()):
    """The path of every key of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(value, dict):
            yield (*path, key)
        yield from paths(inner, (*path, key))


def parent(document, path):
    for part in path[:-1]:
        document = document[part]
    return document


def misspelled(word, number):
    """A word as somebody in a hurry types it; `number` chooses how."""
    middle = len(word) // 2
    ways = (
        word[:middle] + word[middle + 1 :],
        word[:middle] + word[middle - 1] + word[middle:],
        word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :],
        word.swapcase() if word.swapcase() != word else f"{word}s",
        f"{word}s",
    )
    found = ways[number % len(ways)]
    return found if found != word else ways[0]


@pytest.mark.parametrize("target", KUBERNETES)
def test_every_misspelled_key_is_refused(target):
    missed, count = [], 0
    for document in documents(target, "spot"):
        for number, path in enumerate(paths(document)):
            if path[:5] == ("spec", "rayClusterSpec", "workerGroupSpecs", 1, "template") and len(path) > 5:
                continue  # The same as in the first group.
            wrong = copy.deepcopy(document)
            place = parent(wrong, path)
            typo = misspelled(path[-1], number)
            assert typo not in place
            place[typo] = place.pop(path[-1])
            count += 1
            if not validate_documents([wrong]):
                missed.append((document.get("kind"), ".".join(map(str, path)), typo))
    assert missed == []
    assert count > 50


@pytest.mark.parametrize("target", KUBERNETES)
def test_a_value_of_another_type_is_refused(target):
    missed = []
    for document in documents(target, "spot"):
        for path in list(paths(document))[::4]:
            wrong = copy.deepcopy(document)
            value = parent(wrong, path)[path[-1]]
            parent(wrong, path)[path[-1]] = "many" if not isinstance(value, str) else {"a": [1]}
            if not validate_documents([wrong]):
                missed.append((document.get("kind"), ".".join(map(str, path)), value))
    assert missed == []


@pytest.mark.parametrize("target", KUBERNETES)
def test_a_missing_value_ends_in_lines_only(target):
    for document in documents(target, "spot"):
        for path in list(paths(document))[::5]:
            wrong = copy.deepcopy(document)
            parent(wrong, path)[path[-1]] = None
            assert all("\n" not in line for line in validate_documents([wrong, document]))


SHM = "name: {}\n                  emptyDir"
WORDS = [
    ("jobset", "restartPolicy: Never", "restartPolicy: Nver", "must be one of Never"),
    ("jobset", "restartPolicy: Never", "restartPolicy: Always", "needs pods with restartPolicy: Never"),
    ("jobset", "                        - ALL", "                        -", "drop[0]: is empty"),
    ("jobset", "completionMode: Indexed", "completionMode: indexed", "must be one of Indexed"),
    ("jobset", "action: Ignore", "action: Ignored", "must be one of Ignore"),
    ("jobset", "action: FailJobSet", "action: FailJob", "'FailJob' is not one of"),
    ("jobset", "operator: All", "operator: Every", "'Every' is not one of"),
    ("jobset", "replicatedJob: nodes", "replicatedJob: node", "names the replicated job 'node'"),
    ("jobset", "containerName: train", "containerName: main", "no container is called 'main'"),
    (
        "jobset",
        "- name: shm\n                  emptyDir",
        "- name: shn\n                  emptyDir",
        "which is not a volume",
    ),
    ("jobset", "name: MASTER_ADDR", "name: MASTER_ADR", "did you mean 'MASTER_ADDR'?"),
    (
        "jobset",
        "apiVersion: jobset.x-k8s.io/v1alpha2",
        "apiVersion: jobset.x-k8s.io/v1",
        "use jobset.x-k8s.io/v1alpha2",
    ),
    ("jobset", "kind: JobSet", "kind: Jobset", "did you mean 'JobSet'?"),
    ("jobset", "memory: 16384Mi", "memory: 16384MB", "is not an amount"),
    ("jobset", "job-completion-index']", "job-completion-index", "is not a field of a pod"),
    ("jobset", "effect: NoSchedule", "effect: Noschedule", "must be one of NoSchedule"),
    ("kueue", "kind: Service", "kind: Servce", "did you mean 'Service'?"),
    ("kueue", "apiVersion: batch/v1", "apiVersion: batch/v2", "is not a kind that is known"),
    ("kueue", "clusterQueue: team", "clusterQueue: temm", "names ClusterQueue 'temm'"),
    ("kueue", "- name: robot-rl-spot", "- name: robot-rl-spit", "names ResourceFlavor 'robot-rl-spit'"),
    ("kueue", "topologyName: robot-rl-topology", "topologyName: x", "names Topology 'x'"),
    ("kueue", "nominalQuota: 16\n", "nominalQuota: many\n", "is not an amount"),
    ("rayjob", "rayVersion: 2.60.0", "rayVersion: '2.60'", "does not match"),
    ("rayjob", "upscalingMode: Default", "upscalingMode: Fast", "'Fast' is not one of"),
    ("rayjob", "num-cpus:", "num_cpus:", "num_cpus"),
    ("osmo", "resource: node", "resource: nod", "resource 'nod' is not among"),
    ("osmo", "host:node-0", "host:node-9", "'node-9' is not a task"),
    ("osmo", "FAIL: 2,74", "FAIL: 85,2,74", "a code has two actions"),
    ("osmo", "lead: true", "lead: false", "must have one task with lead"),
    ("osmo", "memory: 16384Mi", "memory: 16GB", "does not match"),
    ("osmo", "exec_timeout: 14400s", "exec_timeout: 4h30m", "does not match"),
]


@pytest.mark.parametrize(("target", "right", "wrong", "line"), WORDS)
def test_a_misspelled_value_is_refused_and_named(target, right, wrong, line):
    text = render(target, "spot")
    assert right in text
    found = validate(text.replace(right, wrong, 1))
    assert any(line in one for one in found), found
    assert all("\n" not in one and len(one) <= 300 for one in found)


def test_several_errors_are_a_line_each_and_name_their_document():
    text = render("kueue", "spot").replace("clusterQueue: team", "clusterQeue: team")
    found = validate(text.replace("suspend: true", "sspend: 1"))
    assert [line.split(":")[0] for line in found] == ["LocalQueue (document 4)"] * 2 + ["Job (document 7)"]


def test_what_a_user_adds_is_allowed():
    document = of_kind("JobSet", "jobset", "spot")
    document["metadata"]["labels"] |= {"team": "legs", "example.org/cost": "low"}
    pod = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod |= {"priorityClassName": "batch", "nodeSelector": {"disk": "ssd"}}
    pod["containers"][0]["env"].append({"name": "WANDB_MODE", "value": "offline"})
    assert validate_documents([document]) == []


RAY = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "the file is without a document"),
        ("# nothing\n", "the file is without a document"),
        ("- a\n", "must be a group of keys"),
        ("a: [\n", "document 1: no YAML"),
        ("a: 1\na: 2\n", "the key 'a' is there twice"),
        ("kind: Job\n", "apiVersion: is missing"),
        ("apiVersion: 1\nkind: Job\n", "apiVersion: is missing, or no text"),
        ("apiVersion: v1\nkind: [Job]\n", "kind: is missing, or no text"),
        (f"{RAY}spec: {{entrypoint: x, rayClusterSpec: {{headGroupSpec: {{template: {{}}}}}}}}\n", "spec: is missing"),
    ],
)
def test_a_file_that_is_no_manifest_is_one_line(text, line):
    found = validate(text)
    assert len(found) == 1
    assert line in found[0]
