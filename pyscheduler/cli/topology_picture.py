"""Documents of `topology parse`, drawn for people: a tree and a matrix of a node, a tree of a fabric, a table of metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from pyscheduler.cli.terminal import plain
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.links import Link, UnknownLinkTypeError
from pyscheduler.core.machine.machine_graph import MachineGraph, Vertex, machine_graph
from pyscheduler.core.machine.weights import Weights
from pyscheduler.errors import DocumentError
from pyscheduler.readers import node_document

__all__ = ["draw"]

Document = Mapping[str, Any]

# From nearest to farthest: green, yellow, red; what is unknown is dim.
_FAR: Final = {"PIX": "green", "PXB": "green", "PHB": "yellow", "NODE": "yellow", "PCIE": "yellow", "SYS": "red", "?": "dim"}
_ROWS: Final = 200
# Columns of what is no terminal.
_UNLIMITED: Final = 4096
_JOINTS: Final = {Vertex.PCIE_SWITCH: "PCIe switch", Vertex.SOCKET: "socket"}


def draw(document: Document, console: Console | None = None) -> None:
    """Print `document`, its warnings last."""
    to = console or Console(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)
    draw_kind = {"node": _draw_node, "fabric": _draw_fabric, "metrics": _draw_metrics}[document["kind"]]
    draw_kind(document, to)
    for warning in document["warnings"]:
        to.print(f"[yellow]{plain(warning['code'])}[/]: {plain(warning['message'])}", soft_wrap=True)


def _draw_node(document: Document, console: Console) -> None:
    state = "" if document["complete"] else ", [yellow]incomplete[/]"
    gpus, nics = document["gpus"], document.get("nics") or []
    tree = Tree(f"[bold]{plain(document['format'])}[/]: GPUs {len(gpus)}, NICs {len(nics)}{state}")
    graph = _graph(document)
    if graph is None:
        _draw_homes(gpus, document, tree)
    else:
        _draw_below(graph.node, graph, document, tree)
    console.print(tree)
    if document.get("links") or document.get("nic_links"):
        for table in _matrix(document, console.width):
            console.print(table)


def _graph(document: Document) -> MachineGraph | None:
    """Return the inside of the machine, None where the document holds several machines."""
    try:
        return machine_graph(class_of(node_document.of_json(document)), Weights())
    except DocumentError:
        return None


def _draw_below(vertex: int, graph: MachineGraph, document: Document, tree: Tree, told: int | None = None) -> None:
    """Draw what hangs below the node, a socket or a PCIe switch. `told` is the NUMA node that stands above already."""
    for child in graph.children(vertex):
        kind = graph.kinds[child]
        numa = _numa_of(child, graph, document)
        words = [] if numa is None or numa == told else [f"NUMA node {numa}"]
        if kind is Vertex.GPU:
            tree.add("  ".join([_gpu_line(document["gpus"][child], document), *words]))
        elif kind in _JOINTS:
            _draw_below(child, graph, document, tree.add("  ".join([_JOINTS[kind], *words])), numa)


def _numa_of(vertex: int, graph: MachineGraph, document: Document) -> int | None:
    """Return the NUMA node of all GPUs below, None if they differ or it is not known."""
    nodes = {document["gpus"][gpu].get("numa") for gpu in _gpus_below(vertex, graph)}
    return nodes.pop() if len(nodes) == 1 else None


def _gpus_below(vertex: int, graph: MachineGraph) -> list[int]:
    if graph.kinds[vertex] is Vertex.GPU:
        return [vertex]
    return [gpu for child in graph.children(vertex) for gpu in _gpus_below(child, graph)]


def _draw_homes(gpus: Sequence[Mapping[str, Any]], document: Document, tree: Tree) -> None:
    """Draw the GPUs by host and NUMA node."""
    homes: dict[tuple[str | None, int | None], Tree] = {}
    for gpu in gpus:
        home = (gpu.get("host"), gpu.get("numa"))
        if home not in homes:
            homes[home] = tree.add(_home(*home))
        homes[home].add(_gpu_line(gpu, document))


def _home(host: str | None, numa: int | None) -> str:
    place = "NUMA node unknown" if numa is None else f"NUMA node {numa}"
    return f"{plain(host)}, {place}" if host else place


def _gpu_line(gpu: Mapping[str, Any], document: Document) -> str:
    words = [f"[bold]{plain(gpu['id'])}[/]"]
    words += [plain(str(gpu[key])) for key in ("model", "uuid", "pci") if gpu.get(key)]
    if gpu.get("cpu_affinity"):
        words.append(f"CPUs {plain(gpu['cpu_affinity'])}")
    if gpu.get("nvlink_active") is not None:
        words.append(f"{gpu['nvlink_active']} NVLinks up")
    if gpu.get("nvlink_domain"):
        words.append(f"NVLink domain {plain(gpu['nvlink_domain'])}")
    words += [f"MIG {plain(str(mig.get('profile') or mig.get('uuid')))}" for mig in gpu.get("mig") or ()]
    near = [
        link["nic"] for link in document.get("nic_links") or () if link["gpu"] == gpu["id"] and link["type"] in {"PIX", "PXB"}
    ]
    return "  ".join([*words, *([f"near {plain(', '.join(near))}"] if near else [])])


def _matrix(document: Document, width: int) -> Iterator[Table]:
    """Yield the table of links of all GPUs, and of GPUs with NICs, cut into blocks of columns that are no wider than `width`."""
    gpus = [(gpu.get("host"), gpu["id"]) for gpu in document["gpus"]]
    nics = [(nic.get("host"), nic["id"]) for nic in document.get("nics") or ()]
    links: dict[tuple[Any, ...], str] = {}
    for link in document.get("links") or ():
        a, b = (link.get("a_host"), link["a"]), (link.get("b_host"), link["b"])
        links[a, b] = links[b, a] = link["type"] + (f" ({link['cost']})" if link.get("cost") is not None else "")
    for link in document.get("nic_links") or ():
        links[(link.get("host"), link["gpu"]), (link.get("host"), link["nic"])] = link["type"]
    others = [*gpus, *nics]
    # A column is as wide as its widest text, and a rule of three.
    widest = max(len(text) for text in (*(name for _, name in others), *links.values())) + 3
    step = max(1, width // widest - 1)
    for block in (others[at : at + step] for at in range(0, len(others), step)):
        table = Table(show_edge=False, pad_edge=False)
        for title in ("", *(name for _, name in block)):
            table.add_column(plain(title), no_wrap=True)
        for a in gpus:
            table.add_row(plain(a[1]), *(_cell("X" if a == b else links.get((a, b), "?")) for b in block))
        yield table


def _cell(text: str) -> str:
    return f"[{_colour(text.split(' ', maxsplit=1)[0])}]{plain(text)}[/]"


def _colour(text: str) -> str:
    if text in _FAR:
        return _FAR[text]
    try:
        return "bold green" if Link.parse(text).fast else "white"
    except UnknownLinkTypeError:
        return "dim"


def _draw_fabric(document: Document, console: Console) -> None:
    levels = ", ".join(document["levels"]) or "none"
    tree = Tree(f"[bold]{len(document['nodes'])} nodes[/], levels nearest first: {plain(levels)}")
    branches: dict[tuple[str | None, ...], Tree] = {(): tree}
    for node in document["nodes"]:
        above = _branch(branches, tuple(reversed(node["path"])))
        domain = f"  NVLink domain {node['nvlink_domain']}" if node.get("nvlink_domain") else ""
        above.add(plain(f"{node['name']}{domain}"))
    console.print(tree)


def _branch(branches: dict[tuple[str | None, ...], Tree], path: tuple[str | None, ...]) -> Tree:
    for depth in range(1, len(path) + 1):
        here = path[:depth]
        if here not in branches:
            branches[here] = branches[here[:-1]].add("[dim]unknown[/]" if here[-1] is None else f"[bold]{plain(here[-1])}[/]")
    return branches[path]


def _draw_metrics(document: Document, console: Console) -> None:
    series = document["series"]
    table = Table("node", "card", "metric", "value", show_edge=False, pad_edge=False)
    for entry in series[:_ROWS]:
        table.add_row(*(plain(word) for word in _words(entry)))
    console.print(table)
    if len(series) > _ROWS:
        console.print(f"{len(series) - _ROWS} more; -o json has them all")
    if document.get("discarded"):
        console.print(f"{len(document['discarded'])} values discarded; -o json says why")


def _words(entry: Mapping[str, Any]) -> Iterator[str]:
    card = next((entry[key] for key in ("uuid", "serial", "pci", "device") if entry.get(key)), "?")
    yield str(entry.get("node") or "?")
    yield f"{card} MIG {entry['mig']}" if entry.get("mig") else str(card)
    yield str(entry["metric"])
    yield str(entry["value"])
