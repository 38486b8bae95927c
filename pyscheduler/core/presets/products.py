"""From the product label of a node and its number of GPUs to a preset.

Labels: ``nvidia.com/gpu.product`` is the driver's name of the card with dashes for spaces (GPU feature discovery);
``amd.com/gpu.product-name`` and ``beta.amd.com/gpu.product-name`` are the product name that the driver shows in sysfs,
with underscores for spaces and without parentheses (ROCm/k8s-device-plugin, cmd/k8s-node-labeller/main.go).
Spaces, dashes and underscores are all one here, and so is case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyscheduler.core.presets.machines import PCIE_COUNTS

__all__ = ["for_product"]

_SEPARATORS: Final = re.compile(r"[^A-Z0-9]+")
_BRANDS: Final = re.compile(r"^((NVIDIA|AMD|TESLA|QUADRO|GEFORCE|INSTINCT)-)+")

# Time slicing (-SHARED), MIG (-MIG-1G-5GB, -MIG-INVALID) and vGPU (-8Q, -40C): what is counted are no whole GPUs.
_PARTS: Final = re.compile(r"-(SHARED|MIG-.+|\d+[ABCQ])$")

# The number tells boards of one card apart. A number that no common machine has gives none: a GPU may be missing, or
# given to a virtual machine, and which one is not known.
_BOARDS: Final[tuple[tuple[str, Mapping[int, str]], ...]] = (
    (r"P100-SXM2-16GB", {8: "dgx-1p"}),
    # Four V100-SXM2 are wired in at least three ways (half a cube mesh; two NVLinks per pair; pairs at a POWER9).
    (r"V100-SXM2-(16|32)GB(-LS|-N)?", {8: "dgx-1v"}),
    (r"V100-SXM3-32GB(-H)?", {16: "dgx-2"}),
    (r"A100-SXM4-[48]0GB", {4: "hgx-a100-4", 8: "hgx-a100", 16: "hgx-a100-16"}),
    (r"A800-SXM4-[48]0GB", {8: "hgx-a800"}),
    (r"H100-\d+GB-HBM\d\w?", {4: "hgx-h100-4", 8: "hgx-h100"}),
    # The driver says "NVIDIA H800" and "NVIDIA H20" of the boards; their cards for PCIe slots have a suffix.
    (r"H800", {8: "hgx-h800"}),
    (r"H20(-3E)?", {8: "hgx-h20"}),
    (r"H200", {4: "hgx-h200-4", 8: "hgx-h200"}),
    (r"B200", {8: "hgx-b200"}),
    (r"B300-SXM6-AC", {8: "hgx-b300"}),
    (r"GH200-\d+GB", {4: "gh200-4"}),
    (r"GB200", {4: "gb200"}),
    (r"GB300", {4: "gb300"}),
    # The second is what the driver calls HPE's MI250X. Other boards with MI250 or MI250X are wired in other ways.
    (r"MI250X|MI200-MCM-OAM-LC-MBA-HPE-C2", {8: "mi250x"}),
    # VF: the whole GPU in a virtual machine, as on Azure ND MI300X v5 (the same links: ROCm/rccl, topo_8p_942vm.xml).
    (r"MI300X(-OAM|-VF)?", {8: "mi300x"}),
    (r"MI325X?(-OAM|-VF)?", {8: "mi325x"}),
    (r"MI350X?(-OAM|-VF)?", {8: "mi350x"}),
    (r"MI355X?(-OAM|-VF)?", {8: "mi355x"}),
)

# Cards for PCIe slots. Bridges (NVLink, Infinity Fabric) are never assumed.
_PCIE: Final = (
    r"A[18]00-PCIE-[48]0GB|A[18]00-[48]0GB-PCIE",
    r"V100S?-PCIE-(16|32)GB|V100-FHHL-16GB|P100-PCIE-1[26]GB|P40?|T4G?",
    r"A2|A10G?|A16|A30X?|A40|L4|L20|L40[SG]?",
    r"H100-(PCIE|NVL)|H200-NVL|H800-PCIE",
    r"RTX-.+|GTX-.+",
    r"MI50|MI60|MI100|MI210",
)


def for_product(product: str, gpus: int) -> str | None:
    """Return the name of the preset of a node, None if none is known to describe it.

    Parameters
    ----------
    product
        Value of the product label.
    gpus
        Number of whole GPUs that the node has. Where some of its cards are cut into MIG devices or compute partitions,
        the label does not tell, and the number misleads: do not ask for such a node.

    """
    name = _SEPARATORS.sub("-", product.upper()).strip("-")
    if not name or _PARTS.search(name):
        return None
    if gpus == 1:
        return "single"
    card = _BRANDS.sub("", name)
    for pattern, by_number in _BOARDS:
        if re.fullmatch(pattern, card):
            return by_number.get(gpus)
    if gpus in PCIE_COUNTS and any(re.fullmatch(pattern, card) for pattern in _PCIE):
        return f"pcie-{gpus}"
    return None
