"""`nvidia-smi -q -x`."""

from __future__ import annotations

import pytest

from pyscheduler.readers.nvidia import smi_xml as nvidia_smi_xml
from pyscheduler.readers.reading import Reading, RefusedError

ZERO = "00000000-0000-0000-0000-000000000000"
HEAD = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'


def gpu(bus: str, uuid: str, *more: str) -> str:
    return f"<gpu id='{bus}'>\n<product_name>NVIDIA H100</product_name><uuid>{uuid}</uuid>{''.join(more)}\n</gpu>\n"


def fabric(cluster: str, clique: str, state: str = "Completed", status: str = "Success") -> str:
    inner = f"<state>{state}</state><status>{status}</status><cliqueId>{clique}</cliqueId><clusterUuid>{cluster}</clusterUuid>"
    return f"<fabric>{inner}</fabric>"


def log(*gpus: str, attached: int | None = None) -> str:
    count = len(gpus) if attached is None else attached
    return f"{HEAD}<nvidia_smi_log>\n<attached_gpus>{count}</attached_gpus>\n{''.join(gpus)}</nvidia_smi_log>\n"


FIRST = gpu("00000000:1A:00.0", "GPU-0000000a-1", fabric("11111111-2222-0000-0000-000000000000", "7"))
SECOND = gpu("00000001:2B:00.0", "GPU-0000000b-1", fabric(ZERO, "0"), "<platformInfo><module_id>4</module_id></platformInfo>")


def read(text: str) -> Reading:
    assert nvidia_smi_xml.recognises(text)
    return nvidia_smi_xml.read(text)


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def test_identity_and_nvlink_domain_are_read_and_links_are_not_there():
    reading = read(log(FIRST, SECOND))
    first, second = reading.body["gpus"]

    assert reading.complete
    assert reading.body["links"] == []
    assert (first["id"], first["uuid"], first["pci"], first["model"]) == ("GPU0", "GPU-0000000a-1", "0000:1a:00.0", "NVIDIA H100")
    assert first["nvlink_domain"] == "11111111-2222-0000-0000-000000000000.7"
    assert second["nvlink_domain"] is None
    assert (second["pci"], second["module_id"]) == ("0001:2b:00.0", 4)


def test_a_split_gpu():
    mig = "<mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device><gpu_instance_id>3</gpu_instance_id></mig_device></mig_devices>"
    reading = read(log(gpu("00000000:1A:00.0", "GPU-0000000a-1", mig)))

    assert reading.body["gpus"][0]["mig"] == [{"uuid": None, "profile": None, "gpu_instance": 3}]
    assert reading.body["gpus"][0]["whole"] is False
    assert codes(reading) == ["mig-split"]


def test_a_gpu_that_is_not_registered_with_its_fabric():
    assert codes(read(log(gpu("00000000:1A:00.0", "GPU-0000000a-1", fabric("N/A", "N/A", "In Progress", "N/A"))))) == [
        "fabric-not-ready"
    ]


def test_fields_of_a_lost_gpu_are_unknown():
    reading = read(log(FIRST, gpu("00000000:1B:00.0", "Unknown Error")))

    assert not reading.complete
    assert reading.body["gpus"][1]["uuid"] is None
    assert codes(reading) == ["field-unreadable"]


def test_of_cut_xml_the_whole_gpus_are_read():
    reading = read(log(FIRST, SECOND)[:-60])

    assert not reading.complete
    assert [gpu["uuid"] for gpu in reading.body["gpus"]] == ["GPU-0000000a-1"]
    assert codes(reading)[0] == "xml-cut"


def test_a_gpu_that_is_counted_and_not_described():
    reading = read(log(FIRST, attached=8))

    assert not reading.complete
    assert codes(reading) == ["gpu-missing"]


def test_text_around_the_xml_and_a_second_log():
    reading = read("$ nvidia-smi -q -x\n" + log(FIRST) + "done\n")
    assert reading.complete

    twice = read(log(FIRST) + log(SECOND))
    assert [gpu["uuid"] for gpu in twice.body["gpus"]] == ["GPU-0000000a-1"]
    assert codes(twice) == ["second-log"]


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><nvidia_smi_log><gpu id="1">&b;</gpu></nvidia_smi_log>',
        "<nvidia_smi_log></nvidia_smi_log>",
        "<nvidia_smi_log><gpu>",
        "<nvidia_smi_log>\x00</nvidia_smi_log>",
        "<nvidia_smi_log>\ud800</nvidia_smi_log>",
        "no XML",
    ],
)
def test_what_holds_no_gpu_or_declares_entities_is_refused(text):
    with pytest.raises(RefusedError):
        nvidia_smi_xml.read(text)
