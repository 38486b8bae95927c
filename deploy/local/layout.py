"""Where the control plane keeps what: one folder holds all of its state."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.errors import BinaryMissingError, UnusableFolderError

REPOSITORY: Final = Path(__file__).resolve().parents[2]
BINARIES: Final = REPOSITORY / ".build" / "bin"
DEFAULT_ROOT: Final = REPOSITORY / ".build" / "local"

_MARKER: Final = ".pyscheduler-local"
# A path in a sockaddr_un has 108 bytes on Linux, the last of which is NUL: unix(7).
_SOCKET_PATH_BYTES_MAX: Final = 107
_LONGEST_SERVICE: Final = "pyscheduler-2"


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a control plane below its folder `root` (absolute)."""

    root: Path

    @classmethod
    def of(cls, root: Path) -> Layout:
        """Return the layout of a folder, which need not exist."""
        return cls(root.expanduser().resolve())

    @property
    def logs(self) -> Path:
        """Folder with one log for each component; it outlives the control plane until the next begins."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Folder with one pid file for each process."""
        return self.root / "run"

    @property
    def config(self) -> Path:
        """Folder with the configuration files of the components."""
        return self.root / "config"

    @property
    def pki(self) -> Path:
        """Folder with the API server's certificate and key, and the users' tokens."""
        return self.root / "pki"

    @property
    def etcd(self) -> Path:
        """Folder with etcd's data and sockets."""
        return self.root / "etcd"

    @property
    def kubeconfigs(self) -> Path:
        """Folder with one kubeconfig for each user."""
        return self.root / "kubeconfigs"

    @property
    def socket(self) -> Path:
        """Unix socket of the Python service."""
        return self.socket_of("pyscheduler")

    @property
    def audit(self) -> Path:
        """What the Python service asked the API server to change, one JSON object a line, if that is recorded."""
        return self.logs / "audit.jsonl"

    def socket_of(self, service: str) -> Path:
        """Return the unix socket of one of several Python services."""
        return self.root / f"{service}.sock"

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of a user."""
        return self.kubeconfigs / user.replace(":", "-")

    def log(self, component: str) -> Path:
        """Return the log of a component."""
        return self.logs / f"{component}.log"

    def pid_file(self, component: str) -> Path:
        """Return the pid file of a component."""
        return self.run / f"{component}.json"

    def claim(self) -> None:
        """Make the folder one of a control plane.

        Raises
        ------
        UnusableFolderError
            If it holds files of others, cannot be written, or has too long a path.

        """
        if len(str(self.socket_of(_LONGEST_SERVICE)).encode()) > _SOCKET_PATH_BYTES_MAX:
            raise UnusableFolderError(f"{self.root}: the path is too long for a unix socket; choose a shorter --dir")
        marker = self.root / _MARKER
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            strange = not marker.exists() and any(self.root.iterdir())
            if not strange:
                marker.touch()
        except OSError as error:
            raise UnusableFolderError(f"{self.root}: cannot be written ({error.strerror}); choose another --dir") from error
        if strange:
            raise UnusableFolderError(f"{self.root}: holds files that are not of a control plane; choose an empty --dir")

    def create(self) -> None:
        """Make the folders for a new control plane; what an ended one left is removed, its logs too."""
        self.discard()
        shutil.rmtree(self.logs, ignore_errors=True)
        for folder in (self.logs, self.run, self.config, self.pki, self.etcd, self.kubeconfigs):
            folder.mkdir(mode=0o700, exist_ok=True)

    def discard(self) -> None:
        """Remove all state but the logs."""
        for folder in (self.run, self.config, self.pki, self.etcd, self.kubeconfigs):
            shutil.rmtree(folder, ignore_errors=True)
        for socket in self.root.glob("*.sock"):
            socket.unlink(missing_ok=True)


def binary(name: str, folder: Path = BINARIES) -> Path:
    """Return the path of a program of the control plane.

    Raises
    ------
    BinaryMissingError
        If it has not been built.

    """
    path = folder / name
    if not path.is_file():
        raise BinaryMissingError(f"{name} is not in {folder}: run `make build`")
    return path
