"""Submit the steps of a flow to a Ray cluster, each as a job, when the steps before it have succeeded.

usage: python submit.py --directory DIR [--address http://127.0.0.1:8265]

DIR is a directory that all nodes see; the runs are written there. The driver ends with 0 when all steps have succeeded
and with 1 at the first that failed, after stopping the others. Called again it goes on: a step that has succeeded is
not repeated, one that runs is followed. Needs only Python and `ray[default]`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

SUCCEEDED, FAILED, STOPPED = "SUCCEEDED", "FAILED", "STOPPED"
POLL_S = 2.0


class Driver:
    """Follow the jobs of a graph.

    Attributes:
        jobs: Step -> the id of its newest job.
        done: Steps that have succeeded.
    """

    def __init__(self, client: Any, graph: dict[str, Any], folder: str, directory: str) -> None:
        """Take up the jobs of this flow that the cluster knows."""
        self.client, self.graph, self.folder, self.directory = client, graph, folder, directory
        self.jobs: dict[str, str] = {}
        self.done: set[str] = set()
        self._tries: dict[str, int] = {}
        known = {job.submission_id: str(getattr(job.status, "value", job.status)) for job in client.list_jobs()}
        for step in graph["steps"]:
            count = 1
            while (name := self._job_id(step["name"], count)) in known:
                if known[name] not in (FAILED, STOPPED):
                    self.jobs[step["name"]] = name
                count += 1
            self._tries[step["name"]] = count

    def _job_id(self, step: str, count: int) -> str:
        return f"{self.graph['id']}-{step}-{count}"

    def status(self, step: str) -> str:
        """Return the status of a step's job."""
        found = self.client.get_job_status(self.jobs[step])
        return str(getattr(found, "value", found))

    def submit(self, step: dict[str, Any]) -> None:
        """Submit a step."""
        name = step["name"]
        self.jobs[name] = self.client.submit_job(
            entrypoint=f"bash {step['script']}",
            submission_id=self._job_id(name, self._tries[name]),
            runtime_env={"working_dir": self.folder, "env_vars": {"ROBOT_RL_DIRECTORY": self.directory}},
            metadata={"flow": self.graph["id"], "step": name},
            entrypoint_num_cpus=step["cpus"],
            entrypoint_num_gpus=step["gpus"],
            entrypoint_memory=step["memory"],
            entrypoint_resources=step["resources"],
        )
        self._tries[name] += 1
        print(f"{name} {self.jobs[name]}", flush=True)  # noqa: T201

    def advance(self) -> str:
        """Look at each job and submit what has become ready; return the name of a step that failed, else ""."""
        for step in self.graph["steps"]:
            name = step["name"]
            if name in self.done:
                continue
            if name in self.jobs:
                status = self.status(name)
                if status in (FAILED, STOPPED):
                    return name
                if status == SUCCEEDED:
                    self.done.add(name)
                    print(f"{name} succeeded", flush=True)  # noqa: T201
            elif all(before in self.done for before in step["after"]):
                self.submit(step)
        return ""

    def run(self, poll_s: float = POLL_S) -> int:
        """Follow the graph to its end; return the exit code."""
        while len(self.done) < len(self.graph["steps"]):
            if failed := self.advance():
                self.stop_others(failed)
                lines = self.client.get_job_logs(self.jobs[failed]).strip().splitlines()
                print(f"step {failed} failed: {lines[-1] if lines else 'no output'}", file=sys.stderr)  # noqa: T201
                return 1
            if len(self.done) < len(self.graph["steps"]):
                time.sleep(poll_s)
        return 0

    def stop_others(self, failed: str) -> None:
        """Stop the jobs that still run."""
        for name, job in self.jobs.items():
            if name != failed and name not in self.done:
                self.client.stop_job(job)


def main() -> int:
    """Parse the arguments and follow the graph next to this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--address", default=None)
    words = parser.parse_args()
    from ray.job_submission import JobSubmissionClient

    folder = Path(__file__).resolve().parent
    graph = json.loads((folder / "graph.json").read_text())
    try:
        client = JobSubmissionClient(words.address)
    except (ConnectionError, RuntimeError) as error:
        print(f"no Ray cluster to submit to: {str(error).strip().splitlines()[0]}", file=sys.stderr)  # noqa: T201
        return 2
    return Driver(client, graph, str(folder), str(Path(words.directory).absolute())).run()


if __name__ == "__main__":
    sys.exit(main())
