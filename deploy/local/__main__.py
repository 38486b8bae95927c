"""Commands of the embedded control plane: `python -m deploy.local COMMAND`, run in the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.local import control_plane
from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.demo_scenario import DEMO_ROOT
from deploy.local.errors import LocalError, NotRunningError
from deploy.local.layout import DEFAULT_ROOT, Layout
from deploy.local.users import ADMIN

app = typer.Typer(
    help="A real Kubernetes control plane with simulated GPU nodes on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

CHAOS_ROOT: Final = DEFAULT_ROOT.parent / "chaos"

Folder = Annotated[Path, typer.Option("--dir", help="Folder that holds all state and the logs.")]


@app.command()
def up(
    folder: Folder = DEFAULT_ROOT,
    profile: Annotated[Mode, typer.Option(help="How the profile gpu-topology is run.")] = Mode.REPLACE,
    release_delay: Annotated[float, typer.Option(min=0, help="Seconds that devices are held after their pod.")] = 0,
) -> None:
    """Start the control plane and leave it running; print the path of the kubeconfig."""
    options = Options(root=folder, mode=profile, release_delay_s=release_delay, detached=True)
    print(ControlPlane.start(options).kubeconfig)


@app.command()
def down(folder: Folder = DEFAULT_ROOT) -> None:
    """Stop the control plane; its logs stay."""
    layout = Layout.of(folder)
    stopped = ", ".join(control_plane.stop(layout)) or "nothing, all components had ended"
    print(f"stopped {stopped}; logs are in {layout.logs}")


@app.command()
def status(folder: Folder = DEFAULT_ROOT) -> None:
    """List the components; the exit code is 1 if one that was started has ended."""
    layout = Layout.of(folder)
    found = control_plane.running(layout)
    started = control_plane.started(layout)
    if not started:
        raise NotRunningError(f"{layout.root}: no control plane runs there")
    for name in started:
        state = f"running (pid {found[name].pid})" if name in found else "ended"
        print(f"{name:<24} {state:<22} {layout.log(name)}")
    if len(found) < len(started):
        raise typer.Exit(1)


@app.command()
def kubeconfig(folder: Folder = DEFAULT_ROOT) -> None:
    """Print the path of the kubeconfig of the user who may do everything."""
    path = Layout.of(folder).kubeconfig(ADMIN.name)
    if not path.exists():
        raise NotRunningError(f"{folder}: no control plane runs there; start one with `python -m deploy.local up`")
    print(path)


@app.command("demo")
def show(
    *,
    folder: Folder = DEMO_ROOT,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    output_json: Annotated[Path | None, typer.Option(help="File that takes the results.")] = None,
) -> None:
    """Show the main job: pods come to a half-full cluster, and each gets the best-connected GPUs."""
    from deploy.local import demo, demo_picture  # noqa: PLC0415 - the other commands do not need them

    demo.run(folder, keep=keep, output_json=output_json, console=demo_picture.console())


@app.command()
def demo_stop(folder: Folder = DEMO_ROOT) -> None:
    """End a demo that was left running; its logs stay."""
    down(folder)


@app.command("chaos")
def run_chaos(
    *,
    folder: Folder = CHAOS_ROOT,
    seconds: Annotated[float, typer.Option(min=1, help="How long faults go on.")] = 180,
    pods: Annotated[int, typer.Option(min=1, help="Pods that come in that time, besides those that come with faults.")] = 300,
    seed: Annotated[int, typer.Option(help="What the plans follow from.")] = 1,
) -> None:
    """Kill and stop processes while pods come and go; the exit code is 1 if a GPU was given twice or a pod was lost."""
    from deploy.local import chaos  # noqa: PLC0415 - the other commands do not need it

    def say(text: str) -> None:
        print(text, flush=True)

    with ControlPlane.start(Options(root=folder, release_delay_s=chaos.RELEASE_DELAY_S)) as plane:
        report = chaos.run(plane, chaos.Options(seconds=seconds, pods=pods, seed=seed), say)
    print("\n".join(report.lines()))
    print(f"logs are in {Layout.of(folder).logs}")
    if report.violations:
        raise typer.Exit(1)


@app.command(hidden=True)
def simulate(
    kubeconfig: Annotated[Path, typer.Option(help="How to reach the API server.")],
    ready_file: Annotated[Path, typer.Option(help="File that takes the pid when all nodes are known.")],
    release_delay: Annotated[float, typer.Option(min=0, help="Seconds that devices are held after their pod.")] = 0,
) -> None:
    """Play the device managers of all simulated nodes until stopped."""
    from deploy.local import simulator  # noqa: PLC0415 - the other commands do not need it

    simulator.run(kubeconfig, ready_file, release_delay)


def main() -> None:
    """Run a command; a failure that is not a bug is one message and exit code 1."""
    try:
        app()
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
