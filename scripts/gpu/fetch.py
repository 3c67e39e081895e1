"""Copies what a build needs from Debian's packages into .gpu/, for a machine without a network."""
import re
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ["libfmt-dev", "libcli11-dev", "nlohmann-json3-dev", "zlib1g-dev", "zlib1g", "libjpeg62-turbo-dev",
            "libjpeg62-turbo", "libpng-dev", "libpcre2-dev", "libpcre2-8-0"]


def library_of(package, pattern):
    """The package of the library itself, on which the package of its headers depends."""
    depends = subprocess.run(["apt-cache", "depends", package], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(rf"Depends: ({pattern})", depends)
    if not found:
        sys.exit(f"gpu_check: {package} depends on no {pattern}")
    return found.group(1)


def fetch(root):
    part = root / ".gpu.part"
    packages = [*PACKAGES, library_of("libfmt-dev", r"libfmt[0-9]\S*"), library_of("libpng-dev", r"libpng16\S*")]
    shutil.rmtree(part, ignore_errors=True)
    (part / "packages").mkdir(parents=True)
    (part / "usr").mkdir()
    download = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download"]
    subprocess.run([*download, *packages], cwd=part / "packages", check=True)
    for package in sorted((part / "packages").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(part)], check=True)
    if (part / "lib").is_dir():
        shutil.copytree(part / "lib", part / "usr" / "lib", symlinks=True, dirs_exist_ok=True)
    for link in part.rglob("*"):  # zlib's link leads out of the folder
        if link.is_symlink() and str(link.readlink()).startswith("/"):
            name = link.readlink().name
            link.unlink()
            link.symlink_to(Path(name))
    for folder in ("packages", "lib", "usr/share/doc"):
        shutil.rmtree(part / folder, ignore_errors=True)
    shutil.rmtree(root / ".gpu", ignore_errors=True)
    part.rename(root / ".gpu")
    size = sum(path.stat().st_size for path in (root / ".gpu").rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{size / 1e6:.1f} MB\t.gpu")
