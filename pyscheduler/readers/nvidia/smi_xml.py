"""``nvidia-smi -q -x``: identity, MIG state and NVLink domain of each GPU. It says nothing of links between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.terminal_text import plain

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "nvidia-smi-q-xml"

_ROOT: Final = re.compile(r"<nvidia_smi_log[\s>]")
_END: Final = "</nvidia_smi_log>"
_DOCTYPE: Final = re.compile(r"<!DOCTYPE[^\[<>]*>")
_PCI: Final = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])")
_UUID: Final = re.compile(r"GPU-[0-9a-fA-F-]{8,}")
_ABSENT: Final = frozenset({"", "N/A", "None", "[N/A]", "Unknown Error", "ERR!", "[Unknown Error]", "GPU is lost"})
_CHUNK: Final = 1 << 16


def recognises(text: str) -> bool:
    """Tell whether `text` holds the root element of nvidia-smi's XML."""
    return _ROOT.search(text) is not None


def read(text: str) -> Reading:
    """Return the GPUs. Of XML that is cut, those that are whole, as an incomplete document.

    Raises
    ------
    RefusedError
        If the XML declares entities, or holds no whole GPU.

    """
    clean = plain(text)
    gpus, counted, problem = _parse(clean)
    if not gpus:
        raise RefusedError(problem or "nvidia_smi_log without a GPU", _line_of_root(clean))
    findings = [Finding("xml-cut", f"{problem}; {len(gpus)} GPUs are whole")] if problem else []
    if counted is not None and counted != len(gpus):
        findings.append(Finding("gpu-missing", f"attached_gpus is {counted}, but {len(gpus)} GPUs are described"))
    complete = not findings
    documents = []
    for index, element in enumerate(gpus):
        gpu, found = _gpu(f"GPU{index}", element)
        documents.append(gpu)
        findings += found
        complete = complete and all(finding.code != "field-unreadable" for finding in found)
    if _ROOT.search(clean, clean.find(_END) + 1) and clean.count("<nvidia_smi_log") > 1:
        findings.append(Finding("second-log", "a second nvidia_smi_log follows and is left out; parse each machine alone"))
        complete = False
    body = {"gpus": documents, "nics": [], "links": [], "nic_links": []}
    return Reading("node", FORMAT, body, complete=complete, findings=tuple(findings))


def _line_of_root(text: str) -> int | None:
    root = _ROOT.search(text)
    return text.count("\n", 0, root.start()) + 1 if root else None


def _parse(text: str) -> tuple[list[Element], int | None, str]:
    """Return the GPU elements that are whole, the number that the log claims, and where it breaks off ("" if nowhere)."""
    root = _ROOT.search(text)
    if root is None:
        return [], None, "no element nvidia_smi_log"
    head = _DOCTYPE.sub("", text[: root.start()])
    end = text.find(_END, root.start())
    body = text[root.start() : end + len(_END) if end >= 0 else len(text)]
    if any(word in part for word in ("<!DOCTYPE", "<!ENTITY") for part in (head, body)):
        raise RefusedError("the XML declares entities or a DTD of its own; nvidia-smi writes none")
    first_line = text.count("\n", 0, root.start())
    gpus: list[Element] = []
    counted: list[int] = []
    try:
        for element in _children(body):
            if element.tag == "gpu":
                gpus.append(element)
            elif element.tag == "attached_gpus" and (element.text or "").strip().isdecimal():
                counted.append(int((element.text or "0").strip()[:9]))
    except ParseError as failure:
        line, column = failure.position
        return gpus, counted[0] if counted else None, f"line {line + first_line}, column {column}: {failure.msg.split(':')[0]}"
    except ValueError:
        return gpus, None, "the XML holds characters that are none"
    return gpus, counted[0] if counted else None, ""


def _children(text: str) -> Iterator[Element]:
    """Return the children of the root as each becomes whole."""
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    depth = 0
    for at in range(0, len(text), _CHUNK):
        parser.feed(text[at : at + _CHUNK])
        for item in parser.read_events():
            event, element = cast("tuple[str, Element]", item)
            depth += 1 if event == "start" else -1
            if event == "end" and depth == 1:
                yield element
    parser.close()


def _value(element: Element, path: str) -> str | None:
    """Return the text at `path`; None if there is none, or the driver has no value."""
    text = " ".join((element.findtext(path) or "").split())
    return None if text in _ABSENT or text.startswith("Requested functionality") else text


def _gpu(name: str, element: Element) -> tuple[dict[str, Any], list[Finding]]:
    pci = _PCI.fullmatch((element.get("id") or _value(element, "pci/pci_bus_id") or "").strip().lower())
    uuid = _value(element, "uuid")
    uuid = uuid if uuid and _UUID.fullmatch(uuid) else None
    module = _value(element, "platformInfo/module_id") or _value(element, "module_id")
    gpu: dict[str, Any] = {
        "id": name,
        "numa": None,
        "cpu_affinity": None,
        "uuid": uuid,
        "pci": f"{pci[1]}:{pci[2]}:{pci[3]}.{pci[4]}" if pci else None,
        "model": _value(element, "product_name"),
        "nvlink_domain": _domain(element),
        "module_id": int(module) if module and module.isdecimal() and len(module) < 6 else None,
    }
    findings = [
        Finding("field-unreadable", f"{name}: its {field} cannot be read: unknown")
        for field in ("uuid", "pci", "model")
        if gpu[field] is None
    ]
    findings += _fabric(name, element)
    return gpu, findings + _split(name, gpu, element)


def _domain(element: Element) -> str | None:
    """Return the multi-node NVLink domain. An all-zero cluster is that of every machine that is in none."""
    cluster, clique = _value(element, "fabric/clusterUuid"), _value(element, "fabric/cliqueId")
    if not cluster or not clique or not cluster.strip("0-"):
        return None
    return f"{cluster}.{clique}"


def _fabric(name: str, element: Element) -> list[Finding]:
    """Tell where a GPU that belongs on an NVSwitch fabric is not registered with it."""
    state, status = _value(element, "fabric/state"), _value(element, "fabric/status")
    if state in {None, "Completed", "Not Supported"} and status in {None, "Success"}:
        return []
    text = f"{name}: fabric state is {state or 'unknown'}, status {status or 'unknown'}: its NVLink may not be usable"
    return [Finding("fabric-not-ready", text)]


def _split(name: str, gpu: dict[str, Any], element: Element) -> list[Finding]:
    """Add the MIG instances of a split GPU."""
    devices = element.findall("mig_devices/mig_device")
    if _value(element, "mig_mode/current_mig") != "Enabled" and not devices:
        return []
    gpu["mig"] = [_instance(device) for device in devices]
    gpu["whole"] = False
    return [Finding("mig-split", f"{name} is in MIG mode with {len(devices)} instances: it cannot be given out whole")]


def _instance(device: Element) -> dict[str, Any]:
    instance = _value(device, "gpu_instance_id")
    mig: dict[str, Any] = {"uuid": _value(device, "uuid"), "profile": _value(device, "profile")}
    return mig | {"gpu_instance": int(instance)} if instance and instance.isdecimal() else mig
