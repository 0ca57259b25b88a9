"""The dashboard and the alert rules ask only for metrics that are exported."""

import json
import re

import pytest
import yaml

from robot_rl.cluster.prometheus.families import FAMILIES, exported_names
from robot_rl.cluster.prometheus.serve import packaged

DCGM = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"}
"""Of the counters that DCGM's exporter exports by default."""
BOARD = json.loads(packaged("grafana.json"))
RULES = yaml.safe_load(packaged("alerts.yaml"))["groups"][0]["rules"]
EXPRESSIONS = [
    *(target["expr"] for panel in BOARD["panels"] for target in panel["targets"]),
    *(variable["definition"] for variable in BOARD["templating"]["list"] if variable["type"] == "query"),
    *(rule["expr"] for rule in RULES),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_is_exported(expression):
    outside = re.sub(r'"[^"]*"', '""', expression)
    names = set(re.findall(r"\b(?:robot_rl|DCGM)_\w+", outside))
    assert names
    assert names - DCGM <= set(exported_names())
    labels = {"run", "task", "metric", *FAMILIES, *(label for family in FAMILIES.values() for label in family.labels)}
    assert set(re.findall(r"(\w+)=", outside)) <= labels
    assert outside.count("(") == outside.count(")")


def test_the_dashboard_has_the_fields_of_the_classic_schema():
    assert {"title", "uid", "panels", "templating", "time", "schemaVersion", "annotations"} <= BOARD.keys()
    assert BOARD["id"] is None
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in BOARD["panels"]:
        assert {"type", "title", "gridPos", "targets", "datasource", "fieldConfig", "options"} <= panel.keys()
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


def test_no_panel_lies_on_another():
    cells = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        mine = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not mine & cells
        assert at["x"] + at["w"] <= 24
        cells |= mine


def test_the_alerts_have_what_a_rule_needs():
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
