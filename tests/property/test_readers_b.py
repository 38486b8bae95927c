"""Whatever happens to the output of a tool on its way, its reader gives a document of the fixed form or refuses."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyscheduler.readers.amd import amd_smi, rocm_smi
from pyscheduler.readers.machine import dra, hwloc, nccl_xml
from pyscheduler.readers.reading import Reading, RefusedError

SECONDS = 2.0
LINK = re.compile(r"NV[1-9]\d?|XGMI(?:[1-9]\d?)?|PIX|PXB|PHB|NODE|PCIE|SYS|\?")

_NAMES = ("GPU0", "GPU1", "GPU2", "GPU3")
_ISLAND = {name: i // 2 for i, name in enumerate(_NAMES)}
_WORDS = {(a, b): "0" if a == b else "XGMI" if _ISLAND[a] == _ISLAND[b] else "PCIE" for a in _NAMES for b in _NAMES}
_ROWS = [f"{a:7}" + "".join(f"{_WORDS[a, b]:13}" for b in _NAMES) for a in _NAMES]
ROCM = "\n".join(
    [
        "==== Weight between two GPUs ====",
        "       " + "".join(f"{a:13}" for a in _NAMES),
        *(row.replace("XGMI", "15  ").replace("PCIE", "72  ") for row in _ROWS),
        "==== Link Type between two GPUs ====",
        "       " + "".join(f"{a:13}" for a in _NAMES),
        *_ROWS,
        "==== Numa Nodes ====",
        *(f"GPU[{i}]\t\t: (Topology) Numa Affinity: {i}" for i in range(4)),
        "==== End of ROCm SMI Log ====",
    ]
)
AMD = ROCM.replace("==== Weight between two GPUs ====", "WEIGHT TABLE:").replace(
    "==== Link Type between two GPUs ====", "LINK TYPE TABLE:"
)
AMD_JSON = json.dumps(
    [
        {
            "gpu": i,
            "bdf": f"0000:0{i}:00.0",
            "links": [{"gpu": j, "weight": 15, "link_type": "XGMI", "num_hops": 1} for j in range(3)],
        }
        for i in range(3)
    ],
    indent=1,
)
NCCL = """\
<system version="1">
<cpu numaid="0" affinity="0000000f" host_hash="0x1">
<pci busid="0000:01:00.0" class="0x060400">
<pci busid="0000:02:00.0" class="0x030200"><gpu dev="0" rank="0"><nvlink target="0000:03:00.0" count="4" tclass="0x030200"/></gpu></pci>
<pci busid="0000:03:00.0" class="0x030200"><gpu dev="1" rank="1"><nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu></pci>
<pci busid="0000:04:00.0" class="0x020700"><nic><net name="mlx5_0" port="1"/></nic></pci>
</pci>
</cpu>
</system>
"""
HWLOC = """\
<topology version="2.0">
<object type="Package" cpuset="0x0000000f" nodeset="0x00000001"><object type="NUMANode" os_index="0"/>
<object type="Bridge" bridge_type="0-1">
<object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0302 [10de:20b0]"><object type="OSDev" gp_index="7" name="nvml0"/></object>
<object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0302 [10de:20b0]"><object type="OSDev" gp_index="8" name="nvml1"/></object>
<object type="PCIDev" pci_busid="0000:04:00.0" pci_type="0207 [15b3:101b]"><object type="OSDev" gp_index="9" name="ib0"/></object>
</object></object>
<distances2 type="OSDev" name="NVLinkBandwidth"><indexes>7 8</indexes><u64values>1 50000 50000 1</u64values></distances2>
</topology>
"""
LSTOPO = """\
Machine (64GB total)
  Package L#0
    NUMANode L#0 (P#0 64GB)
    HostBridge
      PCIBridge
        PCI 17:00.0 (3D)
          GPU(NVML) "nvml0"
      PCI 18:00.0 (InfiniBand)
        OpenFabrics "mlx5_0"
      PCI 19:00.0 (3D)
"""
DRA = json.dumps(
    {
        "kind": "ResourceSlice",
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-a"}, "numaNode": {"int": 0}}},
                {
                    "name": "gpu-0-mig-1",
                    "attributes": {"type": {"string": "mig"}, "uuid": {"string": "MIG-a"}, "parentUUID": {"string": "GPU-a"}},
                },
            ],
        },
    },
    indent=1,
)
SAMPLES = [(rocm_smi, ROCM), (amd_smi, AMD), (amd_smi, AMD_JSON), (nccl_xml, NCCL), (hwloc, HWLOC), (hwloc, LSTOPO), (dra, DRA)]
READERS = [rocm_smi, amd_smi, nccl_xml, hwloc, dra]

Edit = Callable[[str], str]


def attempt(reader: ModuleType, text: str) -> Reading | RefusedError:
    try:
        return reader.read(text)
    except RefusedError as refusal:
        return refusal


def check(reader: ModuleType, text: str) -> None:
    """Read; the document must be JSON of the fixed form, with links between GPUs that are listed, each pair once."""
    began = time.process_time()
    assert reader.recognises(text) in (True, False)
    reading = attempt(reader, text)
    assert time.process_time() - began < SECONDS
    if isinstance(reading, RefusedError):
        assert "\n" not in str(reading)
        return
    document = json.loads(json.dumps(reading.document()))
    gpus = {(gpu.get("host"), gpu["id"]) for gpu in document["gpus"]}
    ids = {name for _, name in gpus}
    pairs = [frozenset([(link.get("a_host"), link["a"]), (link.get("b_host"), link["b"])]) for link in document["links"]]
    assert gpus
    assert len(gpus) == len(document["gpus"])
    assert all(len(pair) == 2 and {name for _, name in pair} <= ids for pair in pairs)
    assert len(set(pairs)) == len(pairs)
    assert all(LINK.fullmatch(link["type"]) for link in (*document["links"], *document["nic_links"]))
    assert document["complete"] or document["warnings"]


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    """One accident of copying, at a place from 0 to 1 of the text."""
    at, size = draw(st.floats(0, 1)), draw(st.integers(1, 30))
    junk = draw(
        st.sampled_from(
            [
                "\x00",
                "\x1b[31m",
                "GPU1",
                "XGMI",
                "\t",
                "\r\n",
                "<",
                ">",
                '"',
                "{",
                "]",
                "-1",
                "9" * 40,
                "ERROR: timeout\n",
                "é",
                "\ud800",
            ]
        )
    )

    def place(text: str) -> int:
        return int(at * len(text))

    def line_edit(change: Callable[[list[str], int], list[str]]) -> Edit:
        def edit(text: str) -> str:
            lines = text.split("\n")
            return "\n".join(change(lines, min(int(at * len(lines)), len(lines) - 1)))

        return edit

    return draw(
        st.sampled_from(
            [
                lambda text: text[: place(text)],
                lambda text: text[place(text) :],
                lambda text: text[: place(text)] + text[place(text) + size :],
                lambda text: text[: place(text)] + junk + text[place(text) :],
                lambda text: text + "\n" + text,
                str.upper,
                str.lower,
                lambda text: re.sub(r"[ \t]+", " ", text),
                lambda text: text.replace("\n", "\r\n"),
                line_edit(lambda lines, i: lines[:i] + lines[i + 1 :]),
                line_edit(lambda lines, i: [*lines[: i + 1], *lines[i:]]),
                line_edit(lambda lines, i: [*lines[:i], *reversed(lines[i:])]),
                line_edit(lambda lines, i: [line[:size] + line[size + 13 :] if n >= i else line for n, line in enumerate(lines)]),
            ]
        )
    )


@pytest.mark.parametrize(("reader", "text"), SAMPLES)
def test_the_samples_are_read_whole(reader: ModuleType, text: str) -> None:
    assert reader.recognises(text)
    assert len(reader.read(text).body["gpus"]) >= 1


@pytest.mark.parametrize(("reader", "text"), SAMPLES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(edits(), min_size=1, max_size=4))
def test_damaged_output_is_read_or_refused(reader: ModuleType, text: str, changes: list[Edit]) -> None:
    for change in changes:
        text = change(text)
    check(reader, text)


@st.composite
def losses(draw: st.DrawFn) -> Edit:
    """A piece of the text that is lost: an end, a few characters, or lines."""
    at, size = draw(st.floats(0, 1)), draw(st.integers(1, 120))

    def piece(text: str) -> str:
        start = int(at * len(text))
        return text[:start] + text[start + size :]

    def lines(text: str) -> str:
        kept = text.split("\n")
        start = int(at * len(kept))
        return "\n".join(kept[:start] + kept[start + size % 5 + 1 :])

    return draw(
        st.sampled_from([piece, lines, lambda text: text[: int(at * len(text))], lambda text: text[int(at * len(text)) :]])
    )


@pytest.mark.parametrize("blanks", [True, False], ids=["aligned", "collapsed"])
@settings(max_examples=300, deadline=None)
@given(loss=losses())
def test_no_loss_of_text_makes_a_link_better(blanks: bool, loss: Edit) -> None:
    reading = attempt(rocm_smi, loss(ROCM if blanks else re.sub(r"[ \t]+", " ", ROCM)))
    for link in reading.body["links"] if isinstance(reading, Reading) else ():
        assert link["type"] != "XGMI" or _WORDS.get((link["a"], link["b"]), "XGMI") == "XGMI"


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=400))
def test_bytes_are_read_or_refused(reader: ModuleType, content: bytes) -> None:
    check(reader, content.decode("utf-8", "replace"))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "gpu", "mig", "XGMI", "GPU-a", "0000:01:00.0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "kind",
                    "items",
                    "spec",
                    "devices",
                    "basic",
                    "attributes",
                    "name",
                    "type",
                    "uuid",
                    "string",
                    "pool",
                    "taints",
                    "gpu",
                    "links",
                    "link_type",
                    "weight",
                    "system",
                    "card0",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("reader", [dra, amd_smi, rocm_smi])
@settings(max_examples=80, deadline=None)
@given(value=JSON)
def test_json_of_any_shape_is_read_or_refused(reader: ModuleType, value: object) -> None:
    check(reader, json.dumps(value))


@pytest.mark.parametrize(
    "text",
    [
        "GPU0 " * 40_000,
        "GPU0 XGMI\n" * 20_000,
        "x" * 200_000,
        "XGMI" * 50_000,
        "WEIGHT TABLE:\n" * 20_000,
        "==== Link Type between two GPUs ====\n" + " ".join(f"GPU{i}" for i in range(20_000)),
        "=" * 200_000,
        "<system>" + "<pci>" * 40_000,
        "<system>" + '<pci class="0x030200"/>' * 5_000 + "</system>",
        "<system>" * 20_000,
        '<topology version="2">' + '<object type="Bridge">' * 40_000,
        "Machine (\n" + "\n".join(" " * (i % 500) + "PCIBridge" for i in range(2_000)),
        "[" * 100_000,
        '{"devices":' * 20_000,
        '{"devices": [' + ",".join('{"name": "g", "attributes": {"type": {"string": "gpu"}}}' for _ in range(2_000)) + "]}",
        "\n" * 200_000,
        " " * 200_000,
        "=== " + " " * 100_000 + "x",
        "GPU[0]" + " " * 100_000 + "(Topology",
        "PCI 17:00.0 (" + "( " * 50_000,
        "[\n" * 50_000,
        'GPU L#0 "' + '"' * 100_000,
    ],
    ids=range(22),
)
@pytest.mark.parametrize("reader", READERS)
def test_no_text_takes_more_than_its_length_is_worth(reader: ModuleType, text: str) -> None:
    check(reader, text)
