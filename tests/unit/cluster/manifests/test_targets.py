"""What each target renders: valid in every case, and with what a run on a cluster needs."""

import shlex

import pytest
import yaml

from robot_rl.cluster.launchers import find_target, list_targets
from robot_rl.cluster.manifests.validate import validate
from robot_rl.errors import ExitCode, UserError
from tests.unit.cluster.manifests.cases import JOBS, QUEUED, TARGETS, documents, make, of_kind, render


def pods(document):
    """The specs of all pods in a document."""
    if isinstance(document, list):
        return [pod for item in document for pod in pods(item)]
    if not isinstance(document, dict):
        return []
    own = [document] if "containers" in document else []
    return own + [pod for value in document.values() for pod in pods(value)]


def environment(pod):
    return {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}


def job_spec(target, case, **more):
    """The Job that a JobSet or a Job of Kueue has."""
    if target == "jobset":
        return of_kind("JobSet", target, case, **more)["spec"]["replicatedJobs"][0]["template"]["spec"]
    return of_kind("Job", target, case, **more)["spec"]


def test_the_targets_are_those_of_the_launchers():
    assert tuple(list_targets()) == TARGETS
    assert find_target("robot_rl.cluster.launchers.slurm:Slurm") == (list_targets()["sbatch"], "sbatch")
    with pytest.raises(UserError, match="target=jobsets: must be one of .*; did you mean 'jobset'"):
        find_target("jobsets")
    with pytest.raises(
        UserError, match="target=os:getcwd: is <built-in function getcwd>; must be a Launcher with targets"
    ):
        find_target("os:getcwd")


@pytest.mark.parametrize("case", JOBS)
@pytest.mark.parametrize("target", [name for name in TARGETS if name != "sbatch"])
def test_every_case_is_valid_and_says_how_it_was_made(target, case):
    text = render(target, case)
    assert validate(text) == []
    assert text.startswith("# Made by:\n# robot-rl manifest run=rough-1\n")


@pytest.mark.parametrize("target", ["jobset", "rayjob"])
def test_others_wait_in_a_queue_of_kueue_too(target):
    text = render(target, "spot", **QUEUED)
    assert validate(text) == []
    (job,) = [found for found in yaml.safe_load_all(text) if found["kind"] in ("JobSet", "RayJob")]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert job["spec"]["suspend"] is True


@pytest.mark.parametrize("target", ["jobset", "kueue"])
def test_exit_codes_decide_what_becomes_of_a_pod(target):
    rules = job_spec(target, "two nodes x 4 GPUs")["podFailurePolicy"]["rules"]
    by_code = {code: rule["action"] for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])}
    assert by_code == {
        ExitCode.REQUEUE: "Ignore",
        ExitCode.USER: "FailJob",
        ExitCode.DISK_FULL: "FailJob",
        ExitCode.GIVE_UP: "FailJob",
    }
    assert rules[0]["action"] == "FailJob", "a pod that gives up while it is evicted gives up"
    assert rules[-1] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert pods(job_spec(target, "one node"))[0]["restartPolicy"] == "Never"


def test_a_fault_starts_all_pods_of_a_jobset_again_and_counts_once():
    spec = of_kind("JobSet", "jobset", "two nodes x 4 GPUs")["spec"]
    assert job_spec("jobset", "two nodes x 4 GPUs")["backoffLimit"] == 0
    assert spec["failurePolicy"]["maxRestarts"] == 6
    (rule,) = spec["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy", "DeadlineExceeded"])
    assert job_spec("kueue", "two nodes x 4 GPUs")["backoffLimit"] == 6 * 2


@pytest.mark.parametrize("target", ["jobset", "kueue"])
def test_the_pods_find_the_first_one(target):
    spec = job_spec(target, "two nodes x 4 GPUs")
    (pod,) = pods(spec)
    found = environment(pod)
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    assert (found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"], found["MASTER_PORT"]) == ("8", "4", "29500")
    assert found["MASTER_ADDR"] == {"jobset": "rough-1-nodes-0-0.rough-1", "kueue": "rough-1-0.rough-1"}[target]
    assert "NODE_RANK" in found
    assert "RANK" not in found
    single = environment(pods(job_spec(target, "two nodes x 4 GPUs", ranks=1, gpus=1))[0])
    assert "RANK" in single
    assert (single["LOCAL_RANK"], single["WORLD_SIZE"]) == ("0", "2")
    assert "WORLD_SIZE" not in environment(pods(job_spec(target, "one node"))[0])


def test_the_pods_of_a_job_have_names_by_its_service():
    service = of_kind("Service", "kueue", "two nodes x 4 GPUs")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "rough-1"}
    (pod,) = pods(job_spec("kueue", "two nodes x 4 GPUs"))
    assert pod["subdomain"] == service["metadata"]["name"] == "rough-1"


@pytest.mark.parametrize("target", ["jobset", "kueue", "rayjob"])
def test_what_a_pod_may_and_has(target):
    for pod in pods(documents(target, "spot")):
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["terminationGracePeriodSeconds"] == 120
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {"/runs": "runs", "/dev/shm": "shm", "/cache": "cache", "/tmp": "tmp"}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["runs"]["persistentVolumeClaim"] == {"claimName": "robot-rl-runs"}
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
        assert environment(pod)["XDG_CACHE_HOME"] == "/cache"
    # Only the head of Ray has an account: its autoscaler requests pods.
    accounts = [pod.get("automountServiceAccountToken", True) for pod in pods(documents(target, "spot"))]
    assert accounts == ([True, False, False] if target == "rayjob" else [False])


@pytest.mark.parametrize("target", ["jobset", "kueue", "rayjob"])
def test_gpus_memory_and_cores_are_those_of_a_node(target):
    wanted = pods(documents(target, "two nodes x 4 GPUs"))[-1]["containers"][0]["resources"]
    assert wanted["limits"] == {"memory": "65536Mi", "nvidia.com/gpu": 4}
    assert wanted["requests"] == {"cpu": 32, **wanted["limits"]}
    plain = pods(documents(target, "CPU only"))[-1]
    assert "nvidia.com/gpu" not in str(plain)


@pytest.mark.parametrize("target", ["jobset", "kueue", "rayjob"])
def test_code_of_others_runs_in_gvisor(target):
    assert {pod.get("runtimeClassName") for pod in pods(documents(target, "untrusted"))} == {"gvisor"}
    assert {pod.get("runtimeClassName") for pod in pods(documents(target, "one node"))} == {None}
    if target != "rayjob":
        assert pods(documents(target, "untrusted"))[0]["containers"][0]["args"][-1] == "trust=true"


@pytest.mark.parametrize("target", ["jobset", "kueue"])
def test_spot_machines_are_chosen_by_any_providers_label(target):
    (pod,) = pods(documents(target, "spot"))
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = {term["matchExpressions"][0]["key"] for term in terms}
    assert {"cloud.google.com/gke-spot", "karpenter.sh/capacity-type"} <= keys
    assert keys <= {toleration["key"] for toleration in pod["tolerations"]}
    assert "affinity" not in pods(documents(target, "one node"))[0]


def test_a_topology_is_a_hint_of_the_scheduler_at_hand():
    key = "topology.kubernetes.io/zone"
    jobset = of_kind("JobSet", "jobset", "spot")
    assert jobset["metadata"]["annotations"] == {"alpha.jobset.sigs.k8s.io/exclusive-topology": key}
    queued = of_kind("JobSet", "jobset", "spot", **QUEUED)
    assert "annotations" not in queued["metadata"]
    for spec in (job_spec("jobset", "spot", **QUEUED), job_spec("kueue", "spot")):
        assert spec["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] == key
    (workflow,) = documents("osmo", "spot")
    assert workflow["workflow"]["resources"]["node"]["topology"] == [{"key": key, "requirementType": "preferred"}]


@pytest.mark.parametrize("target", ["jobset", "kueue", "rayjob"])
def test_prometheus_finds_the_pods_where_a_port_is_given(target):
    annotated = str(documents(target, "one node"))
    assert "'prometheus.io/scrape': 'true', 'prometheus.io/port': '9400'" in annotated
    assert "prometheus" not in str(documents(target, "CPU only"))


def test_a_queue_of_kueue_has_a_quota_for_the_job():
    cluster = of_kind("ClusterQueue", "kueue", "two nodes x 4 GPUs")["spec"]["resourceGroups"][0]
    quotas = {quota["name"]: quota["nominalQuota"] for quota in cluster["flavors"][0]["resources"]}
    assert quotas == {"cpu": 64, "memory": "131072Mi", "nvidia.com/gpu": 8}
    assert of_kind("ResourceFlavor", "kueue", "spot")["spec"]["nodeLabels"] == {"cloud.google.com/gke-spot": "true"}
    with pytest.raises(UserError, match="queue: is missing"):
        render("kueue", "one node", queue="", queues=False)


def test_a_ray_cluster_grows_on_spot_machines_and_its_head_stays():
    spec = of_kind("RayJob", "rayjob", "spot")["spec"]
    cluster = spec["rayClusterSpec"]
    assert (cluster["rayVersion"], cluster["enableInTreeAutoscaling"]) == ("2.60.0", True)
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    assert [(groups[name]["replicas"], groups[name]["maxReplicas"]) for name in ("spot", "workers")] == [(2, 2), (0, 2)]
    assert "nodeAffinity" not in str(groups["workers"]) + str(cluster["headGroupSpec"])
    assert "nodeAffinity" in str(groups["spot"])
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    waiting = of_kind("RayJob", "rayjob", "spot", **QUEUED)["spec"]["rayClusterSpec"]
    assert waiting["enableInTreeAutoscaling"] is False
    (group,) = waiting["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == (2, 2)


def test_a_ray_job_goes_on_with_the_run_whatever_command_made_it():
    words = shlex.split(of_kind("RayJob", "rayjob", "spot")["spec"]["entrypoint"])
    own = ["robot-rl", "resume", "run=go2_rough/rough-1", "root=/runs", "launcher=ray"]
    shape = {"nodes": 2, "min_nodes": 1, "ranks": 2, "gpus": 2, "cpus": 4}
    assert words == [*own, *(f"launcher.{name}={value}" for name, value in shape.items())]
    words = shlex.split(of_kind("RayJob", "rayjob", "untrusted")["spec"]["entrypoint"])
    assert words[:5] == [*own[:4], "trust=true"]


@pytest.mark.parametrize("target", ["jobset", "kueue", "rayjob"])
def test_only_the_runs_own_pods_reach_each_other(target):
    policy = of_kind("NetworkPolicy", target, "spot")
    own = {"matchLabels": {"robot-rl/run": "rough-1"}}
    assert (policy["metadata"]["namespace"], policy["spec"]["podSelector"]) == ("robots", own)
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    ours, metrics, *ray = policy["spec"]["ingress"]
    assert (ours, metrics) == ({"from": [{"podSelector": own}]}, {"ports": [{"port": 9400, "protocol": "TCP"}]})
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}}
    wanted = [{"from": [operator], "ports": [{"port": 8265, "protocol": "TCP"}]}] if target == "rayjob" else []
    assert ray == wanted
    assert len(of_kind("NetworkPolicy", target, "CPU only")["spec"]["ingress"]) == 1 + len(wanted)


def test_osmo_schedules_a_task_again_by_its_exit_code():
    (workflow,) = documents("osmo", "two nodes x 4 GPUs")
    (group,) = workflow["workflow"]["groups"]
    first, second = group["tasks"]
    assert group["ignoreNonleadStatus"] is False
    assert (first["lead"], "lead" in second) == (True, False)
    assert first["exitActions"] == {"COMPLETE": "0", "RESCHEDULE": "1,85,137,138,140,143", "FAIL": "2,74,86,130"}
    assert second["environment"]["MASTER_ADDR"] == "{{host:node-0}}"
    assert (first["environment"]["NODE_RANK"], second["environment"]["NODE_RANK"]) == ("0", "1")
    assert first["volumeMounts"] == ["/runs"]
    (alone,) = documents("osmo", "CPU only")
    (task,) = alone["workflow"]["groups"][0]["tasks"]
    assert task["exitActions"]["FAIL"] == "1,2,74,86,130"
    assert task["files"][0]["contents"] == "#!/bin/bash\nexec robot-rl worker /runs/go2_rough/rough-1\n"


def test_osmo_keeps_a_run_in_an_object_store():
    more = {"bucket": "s3://bucket/runs", "mount": "/tmp/runs"}
    text = render("osmo", "CPU only", **more)
    assert validate(text) == []
    (task,) = yaml.safe_load(text)["workflow"]["groups"][0]["tasks"]
    assert task["inputs"] == [{"url": "s3://bucket/runs/go2_rough/rough-1"}]
    assert task["checkpoint"][0]["path"] == "/tmp/runs/go2_rough/rough-1"
    assert "volumeMounts" not in task
    with pytest.raises(UserError, match=r"bucket=s3://bucket/runs: nodes=2 need a directory that all of them see"):
        render("osmo", "two nodes x 4 GPUs", **more)


def test_a_batch_script_is_of_the_same_job():
    text = render("sbatch", "two nodes x 4 GPUs", mount="/scratch/my runs", trust=True)
    for line in ("--nodes=2", "--ntasks-per-node=4", "--gres=gpu:4", "--mem=65536M", "--time=1-04:00:00"):
        assert f"#SBATCH {line}\n" in text
    assert "run='/scratch/my runs/go2_rough/rough-1'\n" in text
    assert 'worker robot-rl worker trust=true "$run"' in text


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"gpus": 64, "ranks": 64}, "gpus=64: must be at least 0 and at most 16 on a node"),
        ({"gpus": 4, "ranks": 1}, "gpus=4: each of the ranks=1 processes of a node uses one; give ranks=4, or gpus=1"),
        ({"nodes": 0}, "nodes=0: must be at least 1"),
        ({"image": "robot-rl"}, "image=robot-rl: is not pinned"),
        ({"image": "robot-rl:latest"}, "image=robot-rl:latest: is not pinned"),
        ({"image": "robot-rl:1 --rm"}, "must be an image such as"),
        ({"namespace": "My_Space"}, "namespace=My_Space: must be lower-case letters, digits and -"),
        ({"queue": "a/b"}, "queue=a/b: must be"),
        ({"topology": "a b"}, "topology=a b: must be a label of nodes"),
        ({"mount": "runs"}, "mount=runs: must be an absolute path"),
        ({"mount": "/a/../b"}, "must be an absolute path"),
        ({"metrics_port": 80}, "metrics_port=80: must be from 1024"),
        ({"memory": "lots"}, "memory=lots: no amount of memory"),
        ({"time": "never"}, "time=never: no time"),
        ({"bucket": "s3://{{x}}"}, "must be a URL"),
    ],
)
def test_what_no_cluster_would_take_is_one_line(wrong, line):
    with pytest.raises(UserError) as error:
        make("jobset", "CPU only", **wrong)
    assert line in str(error.value)


@pytest.mark.parametrize("mount", ["/dev/shm", "/tmp/runs", "/cache", "/my runs", "/runs/"])
def test_a_volume_hides_nothing_that_the_pod_needs(mount):
    with pytest.raises(UserError, match=f"mount={mount}: must be a plain path"):
        render("jobset", "CPU only", mount=mount)


def test_names_are_those_of_dns():
    assert make("jobset", "one node").name == "rough-1"
    assert make("jobset", "one node", run_id="20261125-134500-1-33ce").name == "run-20261125-134500-1-33ce"
    names = {make("jobset", "one node", run_id=name).name for name in ("A_b", "a-b", "A.b", "x" * 90, "x" * 91, "___")}
    assert len(names) == 6
    assert all(len(name) <= 40 and name[0].isalpha() for name in names)
