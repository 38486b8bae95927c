"""`pyscheduler doctor` beside a real Prometheus: one where all is well, one with every fault of scraping, and none that answers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import requests

from pyscheduler.cli.main import main
from tests.integration.little_api import LittleApi
from tests.integration.prometheus_server import WAIT_S, Door, Prometheus, await_, free_port, program, respond
from tests.sim.exporter import Exporters, small_fleet
from tests.sim.fleet import Generation
from tests.sim.live import LiveFleet

GPU = "nvidia.com/gpu"
Job = Mapping[str, object]


class Run:
    """One call of `pyscheduler doctor`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["pyscheduler", "doctor", *words])
        with pytest.raises(SystemExit) as end:
            main()
        self.code = end.value.code or 0
        self.out, self.err = capfd.readouterr()

    @property
    def findings(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(self.out)["findings"]
        return found

    def bad(self) -> list[str]:
        return list(dict.fromkeys(each["code"] for each in self.findings if each["severity"] != "note"))

    def messages(self, code: str) -> list[str]:
        return [each["message"] for each in self.findings if each["code"] == code]


Doctor = Callable[..., Run]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Doctor:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return lambda *words: Run(monkeypatch, capfd, *words)


def node_objects(live: LiveFleet) -> list[dict[str, Any]]:
    """Return the Node objects of a fleet, with documents that name its cards as their exporters do."""
    objects = []
    for number, node in enumerate(live.fleet.nodes):
        uuids = [card.uuid for card in live.fleet.cards if card.node == number]
        if node.exporter is Generation.AMD:
            uuids = [uuid.removeprefix("GPU-") for uuid in uuids]
        gpus = [{"id": f"GPU{i}", "uuid": uuid} for i, uuid in enumerate(uuids)]
        document = {"version": 1, "kind": "node", "gpus": gpus, "links": []}
        count = {GPU: str(len(gpus))}
        metadata = {"name": node.name, "annotations": {"pyscheduler.io/topology": json.dumps(document)}}
        objects.append({"kind": "Node", "metadata": metadata, "status": {"capacity": count, "allocatable": count}})
    return objects


def write(folder: Path, objects: Sequence[object]) -> str:
    path = folder / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
    return str(path)


class Setting:
    """A fleet, the Prometheus that scrapes it, and a file with its nodes."""

    def __init__(self, stack: ExitStack, folder: Path, jobs: Callable[[Exporters, str], list[Job]]) -> None:
        self.live = small_fleet(2)
        self.live.work(range(len(self.live.fleet.cards)))
        self.exporters = Exporters(self.live)
        address = stack.enter_context(self.exporters.serving())
        self.prometheus = Prometheus(folder, jobs(self.exporters, address))
        stack.callback(self.prometheus.kill)
        self.prometheus.start()
        self.nodes = node_objects(self.live)
        self.file = write(folder, self.nodes)

    def scraped(self) -> list[str]:
        """Whether each target that was tried at all is up (`1`) or not (`0`)."""
        asked = requests.get(f"{self.prometheus.url}/api/v1/query", {"query": "up"}, timeout=5).json()
        return sorted(each["value"][1] for each in asked["data"]["result"])


def job(exporters: Exporters, address: str, name: str, node: str, **more: object) -> Job:
    static = {"targets": [address], "labels": more.pop("labels", {})}
    return {"job_name": name, "metrics_path": exporters.path(node), "static_configs": [static], **more}


# The names of the fleet's nodes, by what their exporters are.
OLD, NEW, OTHER_OLD, OTHER_NEW, AMD, OTHER_AMD = "h100-0", "h100-1", "h100-2", "h100-3", "mi300x-0", "mi300x-1"


def all_is_well(exporters: Exporters, address: str) -> list[Job]:
    return [job(exporters, address, f"gpu-{name}", name) for name in (NEW, OTHER_NEW, AMD, OTHER_AMD)]


def nothing_is(exporters: Exporters, address: str) -> list[Job]:
    def relabel(**to: str) -> dict[str, object]:
        return {"metric_relabel_configs": [{"target_label": label, "replacement": text} for label, text in to.items()]}

    no_sm = {"metric_relabel_configs": [{"source_labels": ["__name__"], "regex": "DCGM_FI_PROF_SM_ACTIVE", "action": "drop"}]}
    into_amd = {"relabel_configs": [{"target_label": "job", "replacement": "amd"}]}
    exporters.away.add(OTHER_AMD)
    return [
        job(exporters, address, "own-pod", NEW, **relabel(hostname="nvidia-dcgm-exporter-x7z2q")),
        job(exporters, address, "defaults", OTHER_OLD, **no_sm),
        job(exporters, address, "once", OTHER_NEW),
        job(exporters, address, "twice", OTHER_NEW),
        job(exporters, address, "amd-a", AMD, labels={"prometheus_replica": "a"}, **into_amd),
        job(exporters, address, "amd-b", AMD, labels={"prometheus_replica": "b"}, **into_amd),
        job(exporters, address, "amd-away", OTHER_AMD),
        job(exporters, address, "full", OLD),
    ]


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    program()
    with ExitStack() as stack:
        setting = Setting(stack, tmp_path_factory.mktemp("well"), all_is_well)
        setting.nodes = [each for each in setting.nodes if each["metadata"]["name"] not in (OLD, OTHER_OLD)]
        setting.file = write(setting.prometheus.folder, setting.nodes)
        await_(lambda: setting.scraped() == ["1"] * 4, "all are scraped")
        yield setting


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    program()
    with ExitStack() as stack:
        setting = Setting(stack, tmp_path_factory.mktemp("broken"), nothing_is)
        await_(lambda: setting.scraped() == ["0"] + ["1"] * 7, "all but one are scraped, and that one was tried")
        yield setting


def test_where_all_is_well_nothing_needs_doing(well: Setting, run: Doctor) -> None:
    done = run("--url", well.prometheus.url, "--nodes", well.file, "-o", "json")
    assert (done.code, done.bad(), done.err) == (0, [], "")
    document = json.loads(done.out)
    assert (document["kind"], document["nodes"], document["gpus"]) == ("doctor", 4, 32)
    kinds = {"DCGM exporter 4.9 or later", "AMD's device metrics exporter"}
    assert {message.partition(", ")[2] for message in done.messages("exporter")} == kinds
    assert "label hostname names 4 of the 4 nodes with GPUs" in done.messages("node-label")


def test_every_fault_of_scraping_is_found_and_nothing_else(broken: Setting, run: Doctor) -> None:
    done = run("--url", broken.prometheus.url, "--nodes", broken.file, "-o", "json")
    assert done.code == 1
    assert done.bad() == [
        "targets-down",
        "unknown-nodes",
        "node-without-series",
        "metric-partial",
        "replicas",
        "scraped-twice",
    ]
    assert done.messages("targets-down") == ["1 of 1 target of job amd-away cannot be scraped"]
    assert done.messages("unknown-nodes") == ["series of 8 cards are of no node of this cluster (job own-pod)"]
    assert [each["node"] for each in done.findings if each["code"] == "node-without-series"] == [NEW, OTHER_AMD]
    assert any("'nvidia-dcgm-exporter-x7z2q' (the exporter's own pod)" in told for told in done.messages("node-label"))
    lacking = next(told for told in done.messages("metric-partial") if "SM activity" in told)
    assert lacking.startswith("8 of 24 NVIDIA cards lack SM activity")
    assert lacking.endswith(f"on {OTHER_OLD}")
    assert done.messages("replicas")[0].startswith("8 cards have a series from each of several")
    assert done.messages("scraped-twice") == ["8 cards are scraped more than once (their series differ in job)"]


def test_text_tells_what_to_do_and_counts(broken: Setting, run: Doctor) -> None:
    done = run("--url", broken.prometheus.url, "--nodes", broken.file)
    assert done.code == 1
    assert f"{NEW}, {OTHER_AMD}: has GPUs and no series of them" in done.out
    assert "-> let the scrape set the label `node`" in done.out
    assert done.out.splitlines()[-1].endswith(" on 6 nodes, 48 GPUs")


def test_nodes_of_the_cluster_count_where_no_file_does(well: Setting, run: Doctor, tmp_path: Path) -> None:
    config = tmp_path / "pyscheduler.yaml"
    config.write_text(json.dumps({"metrics": {"url": well.prometheus.url}}))
    api = LittleApi()
    api.start()
    try:
        for each in well.nodes:
            api.put("nodes", each)
        done = run("--config", str(config), "--kubeconfig", str(api.kubeconfig(tmp_path)), "-o", "json")
    finally:
        api.stop()
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["nodes"] == 4


# -- no answer --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def door(well: Setting) -> Iterator[Door]:
    with Door(well.prometheus.url).open() as door:
        yield door


def asked(run: Doctor, folder: Path, file: str, url: str, **more: object) -> Run:
    config = folder / "pyscheduler.yaml"
    config.write_text(json.dumps({"metrics": {"url": url, "timeout": "1s", **more}}))
    return run("--config", str(config), "--nodes", file, "-o", "json")


def one_error(done: Run) -> str:
    assert done.code == 1
    assert [(each["code"], each["severity"]) for each in done.findings] == [("prometheus", "error")]
    return done.findings[0]["message"]


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "check metrics.tokenFile"), (404, "needs the path before /api/v1"), (500, "see the log of Prometheus")],
)
def test_refusal_is_one_error_that_names_the_setting(
    well: Setting, door: Door, run: Doctor, tmp_path: Path, status: int, says: str
) -> None:
    door.fault = lambda handler, _, __: respond(handler, status, b"no")
    assert says in one_error(asked(run, tmp_path, well.file, door.url))


def test_silence_is_one_error(well: Setting, door: Door, run: Doctor, tmp_path: Path) -> None:
    asked_enough = threading.Event()

    def silent(*_: object) -> None:
        asked_enough.wait(WAIT_S)

    door.fault = silent
    try:
        assert "took longer than 1 s" in one_error(asked(run, tmp_path, well.file, door.url))
    finally:
        asked_enough.set()


def test_nobody_there_is_one_error(well: Setting, run: Doctor, tmp_path: Path) -> None:
    assert "is it up" in one_error(asked(run, tmp_path, well.file, f"http://127.0.0.1:{free_port()}"))


def test_plain_server_behind_https_is_one_error(well: Setting, run: Doctor, tmp_path: Path) -> None:
    url = well.prometheus.url.replace("http://", "https://")
    assert "the server speaks plain HTTP: write http:// in metrics.url" in one_error(asked(run, tmp_path, well.file, url))


def test_token_that_is_not_there_is_one_error(well: Setting, run: Doctor, tmp_path: Path) -> None:
    done = asked(run, tmp_path, well.file, well.prometheus.url, tokenFile=str(tmp_path / "none"))
    assert "metrics.tokenFile" in one_error(done)


def test_question_that_fails_later_is_told_and_the_rest_is_checked(
    well: Setting, door: Door, run: Doctor, tmp_path: Path
) -> None:
    def fault(handler: BaseHTTPRequestHandler, form: str, body: bytes) -> None:
        if "by (job)" in parse_qs(form)["query"][0]:
            respond(handler, 422, b"too many")
        else:
            respond(handler, 200, body)

    door.fault = fault
    done = asked(run, tmp_path, well.file, door.url)
    assert done.bad() == ["question-failed"]
    assert all("HTTP 422" in told for told in done.messages("question-failed"))
    assert done.messages("samples")


def test_answers_of_another_form_are_one_error(well: Setting, door: Door, run: Doctor, tmp_path: Path) -> None:
    door.fault = lambda handler, _, body: respond(handler, 200, body.replace(b"__name__", b"name"))
    assert "is it Prometheus?" in one_error(asked(run, tmp_path, well.file, door.url))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "set metrics.url in the file of --config, or pass --url"),
        (["--url", "prometheus:9090"], "--url: 'prometheus:9090' must be the address of Prometheus"),
        (["--url", "http://p:9090"], "name a kubeconfig"),
        (["--url", "http://p:9090", "--nodes", "/nowhere.json"], "/nowhere.json: cannot be read"),
    ],
)
def test_wrong_use_is_one_line(run: Doctor, words: list[str], says: str) -> None:
    done = run(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
