"""Every kind of finding, by name, from one file for each subject."""

from __future__ import annotations

from collections.abc import Mapping

from narrowgauge.checkpoints.findings import Kind
from narrowgauge.checkpoints.kinds.against import AGAINST
from narrowgauge.checkpoints.kinds.config import CONFIG
from narrowgauge.checkpoints.kinds.engines import ENGINES
from narrowgauge.checkpoints.kinds.files import FILES
from narrowgauge.checkpoints.kinds.online import ONLINE
from narrowgauge.checkpoints.kinds.scales import SCALES
from narrowgauge.checkpoints.kinds.values import VALUES

GROUPS: Mapping[str, Mapping[str, Kind]] = {
    "files": FILES,
    "values": VALUES,
    "scales": SCALES,
    "config": CONFIG,
    "against": AGAINST,
    "engines": ENGINES,
    "online": ONLINE,
}
KINDS: dict[str, Kind] = {name: kind for group in GROUPS.values() for name, kind in group.items()}
