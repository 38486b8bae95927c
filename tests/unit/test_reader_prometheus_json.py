"""Answers of the query API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.readers.cards import prometheus_json
from pyscheduler.readers.reading import RefusedError


def metric(uuid: str = "GPU-1", **labels: str) -> dict[str, str]:
    return {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": uuid, "Hostname": "n1", "gpu": "0", "instance": "10.0.0.1:9400"} | labels


def vector(*series: tuple[dict[str, str], list[Any]]) -> str:
    result = [{"metric": labels, "value": value} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def matrix(*series: tuple[dict[str, str], list[Any]]) -> str:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def series(text: str) -> list[dict[str, Any]]:
    return prometheus_json.read(text).body["series"]


def codes(text: str) -> list[str]:
    return [finding.code for finding in prometheus_json.read(text).findings]


def test_an_instant_answer_has_one_entry_per_card():
    text = vector((metric(), [1700000000.5, "91"]))

    assert prometheus_json.recognises(text)
    assert series(text) == [{"node": "n1", "uuid": "GPU-1", "mig": None, "metric": "DCGM_FI_DEV_GPU_UTIL", "value": 91}]
    assert codes(text) == []


def test_a_range_keeps_every_time():
    text = matrix((metric(), [[10, "1"], [25, "2.5"]]))

    assert [(s["time"], s["value"]) for s in series(text)] == [(10, 1), (25, 2.5)]


def test_one_card_under_two_jobs_counts_once():
    text = vector((metric(job="a"), [10, "5"]), (metric(job="b", instance="10.0.0.1:9401"), [10, "5"]))

    assert [s["value"] for s in series(text)] == [5]
    assert codes(text) == ["sample-repeated"]


def test_where_two_jobs_differ_the_busier_value_counts_in_either_order():
    for values in (("5", "9"), ("9", "5")):
        text = vector(*((metric(job=job), [10, value]) for job, value in zip("ab", values, strict=True)))
        assert [s["value"] for s in series(text)] == [9]
        assert codes(text) == ["samples-differ"]


def test_the_newest_sample_of_an_instant_answer_counts():
    text = vector((metric(job="a"), [10, "9"]), (metric(job="b"), [20, "5"]))

    assert [s["value"] for s in series(text)] == [5]


def test_a_slot_whose_card_was_replaced_is_reported_in_order():
    text = matrix((metric("GPU-new"), [[30, "0"]]), (metric("GPU-old"), [[10, "7"]]))

    (finding,) = prometheus_json.read(text).findings
    assert finding.code == "uuid-changed"
    assert "GPU-old then GPU-new" in finding.message


def test_samples_that_are_no_numbers_stay_dropped():
    text = matrix((metric(), [[10, "NaN"], [25, "3"], [40, "9223372036854775794"], ["x"], 7]))

    assert [(s["time"], s["value"]) for s in series(text)] == [(25, 3)]
    assert [(d["time"], d["reason"]) for d in prometheus_json.read(text).body["discarded"]] == [
        (10, "not a finite number"),
        (40, "sentinel: not supported"),
    ]
    assert "sample-unreadable" in codes(text)


def test_only_the_exported_pod_is_the_user():
    used = metric(pod="exporter-1", namespace="mon", exported_pod="train-0", exported_namespace="ml")

    assert series(vector((used, [10, "5"])))[0]["pod"] == "ml/train-0"
    assert "pod" not in series(vector((metric(pod="exporter-1", namespace="mon"), [10, "5"])))[0]


@pytest.mark.parametrize("text", [vector(), matrix(), vector(({"__name__": "up", "job": "x"}, [10, "1"]))])
def test_an_answer_without_gpus_means_unknown_and_not_idle(text: str):
    assert prometheus_json.recognises(text)
    assert series(text) == []
    assert "empty-answer" in codes(text)


def test_warnings_of_the_server_are_passed_on():
    raw = json.loads(vector((metric(), [10, "1"]))) | {"warnings": ["partial\nresponse", 7]}

    (finding,) = prometheus_json.read(json.dumps(raw)).findings
    assert (finding.code, finding.message) == ("server-warning", "the server says: partial response")


def test_native_histograms_are_left_out_and_named():
    raw = {"resultType": "vector", "result": [{"metric": metric(), "histogram": [1, {}]}]}

    assert codes(json.dumps(raw)) == ["histogram", "empty-answer"]


def test_a_result_that_was_cut_out_is_read():
    whole = json.loads(vector((metric(), [10, "1"])))

    for part in (whole["data"], whole["data"]["result"]):
        assert prometheus_json.recognises(json.dumps(part))
        assert len(series(json.dumps(part))) == 1


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"status": "error", "errorType": "timeout", "error": "query\ntimed out"}, "failed .timeout: query timed out"),
        ({"status": "success", "data": {"resultType": "scalar", "result": [10, "1"]}}, "type scalar names no GPU"),
        ({"status": "success", "data": {"resultType": "vector"}}, 'no "result" list'),
        (7, "an object is needed"),
    ],
)
def test_failed_queries_and_other_kinds_are_refused_in_one_line(raw: Any, reason: str):
    with pytest.raises(RefusedError, match=reason) as refused:
        prometheus_json.read(json.dumps(raw))
    assert "\n" not in str(refused.value)


def test_a_cut_answer_is_refused_with_its_line():
    with pytest.raises(RefusedError, match="line 1: is no JSON"):
        prometheus_json.read('{"status": "success", "data": {"resultType": "vec')
