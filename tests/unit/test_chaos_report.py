"""What a chaos run prints."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.local import __main__ as command
from deploy.local import chaos
from deploy.local.chaos_recorder import Wait
from deploy.local.chaos_report import Recovery, Report, calm_s
from deploy.local.chaos_violations import Kind, Violation
from deploy.local.control_plane import ControlPlane

TWICE = Violation(kind=Kind.GPU_TWICE, at_s=3.0, pods=("ns/a", "ns/b"), node="n1", gpus=("GPU-1",))
FAULTS = (
    Recovery(fault="kill -9 etcd", begun_s=10.0, ready_s=12.0, next_bind_s=0.25, longest_s=1.0),
    Recovery(fault="kill -9 etcd", begun_s=20.0, ready_s=21.0, next_bind_s=0.75, longest_s=2.0),
    Recovery(fault="SIGSTOP pyscheduler", begun_s=30.0, ready_s=31.0, next_bind_s=6.0, longest_s=7.0),
)
REPORT = Report(
    seed=7,
    took_s=60.0,
    pods=50,
    job_pods=10,
    bound=49,
    changes=300,
    gaps=1,
    unjudged=0,
    suffered={"lost GPUs": 3},
    refusals=(),
    waits=(Wait("ns/quick", 5.0, 6.0), Wait("ns/slow", 5.0, 25.0)),
    recoveries=FAULTS,
    violations=(),
)


def line(report: Report, text: str) -> str:
    (found,) = [each for each in report.lines() if text in each]
    return found


def test_table_has_median_and_maximum_of_each_fault() -> None:
    assert line(REPORT, "kill -9 etcd").split() == ["kill", "-9", "etcd", "2", "0.50", "0.75", "2.00"]


def test_what_misses_the_goal_is_marked() -> None:
    assert "over the goal" in line(REPORT, "SIGSTOP pyscheduler")
    assert "over the goal" not in line(REPORT, "kill -9 etcd")
    never = replace(REPORT, recoveries=(replace(FAULTS[0], next_bind_s=None),))
    assert "over the goal" in line(never, "kill -9 etcd")


def test_violations_are_listed() -> None:
    assert line(REPORT, "violations") == "violations: none"
    bad = replace(REPORT, violations=(TWICE,))
    assert line(bad, "violations") == "violations: 1"
    assert line(bad, "n1") == "3.0 s: one GPU in two live pods: ns/a, ns/b on n1 GPUs GPU-1"


@pytest.mark.parametrize(
    ("since_s", "until_s", "expected_s"), [(5.0, 25.0, 17.0), (11.0, 13.0, 1.0), (10.5, 11.5, 0.0), (40.0, 41.0, 1.0)]
)
def test_time_of_faults_does_not_count_as_waiting(since_s: float, until_s: float, expected_s: float) -> None:
    assert calm_s(Wait("ns/a", since_s, until_s), FAULTS) == pytest.approx(expected_s)


def test_pods_that_waited_long_though_all_was_well_are_listed() -> None:
    assert "17.0 s" in line(REPORT, "ns/slow")
    assert not [each for each in REPORT.lines() if "ns/quick" in each]


@pytest.mark.parametrize(("violations", "code"), [((), 0), ((TWICE,), 1)])
def test_exit_code_tells_violations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, violations: tuple[Violation, ...], code: int
) -> None:
    asked: list[chaos.Options] = []

    def run(_plane: object, options: chaos.Options, _say: object) -> Report:
        asked.append(options)
        return replace(REPORT, violations=violations)

    monkeypatch.setattr(chaos, "run", run)
    monkeypatch.setattr(ControlPlane, "start", lambda _: nullcontext())
    arguments = ["chaos", "--dir", str(tmp_path), "--seconds", "9", "--pods", "8", "--seed", "7"]
    result = CliRunner().invoke(command.app, arguments)
    assert result.exit_code == code
    assert ("n1" in result.output) == bool(violations)
    assert asked == [chaos.Options(seconds=9, pods=8, seed=7)]
