#!/usr/bin/env python3
"""Builds what is shipped beside the crate, from one native binary.

    build.py BINARY PLATFORM OUTDIR      PLATFORM as Node names it: linux-x64, darwin-arm64, win32-x64 …

Leaves in OUTDIR:
    npm/mcp-proxy-hub/                   the wrapper package, which names the platform packages of this version
    npm/mcp-proxy-hub-PLATFORM/          the platform package with the binary
    mcp-proxy-VERSION-PLATFORM.mcpb      the bundle for hosts that install such bundles
    mcp-proxy-VERSION-PLATFORM.tar.gz    the archive that `cargo binstall` and people download

Needs nothing but Python. The version is the crate's.
"""

import json
import pathlib
import re
import shutil
import stat
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
# What is published for a version; the wrapper names them all.
PLATFORMS = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "win32-x64"]


def version() -> str:
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^version = "([^"]+)"', text, re.M).group(1)


def write_json(path: pathlib.Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def place_binary(binary: pathlib.Path, folder: pathlib.Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    name = "mcp-proxy.exe" if binary.suffix == ".exe" else "mcp-proxy"
    shutil.copyfile(binary, folder / name)
    (folder / name).chmod(0o755)
    return name


def npm(binary: pathlib.Path, platform: str, out: pathlib.Path) -> None:
    wrapper = out / "npm" / "mcp-proxy-hub"
    shutil.copytree(HERE / "npm" / "mcp-proxy", wrapper, dirs_exist_ok=True)
    shutil.copyfile(ROOT / "README.md", wrapper / "README.md")
    package = json.loads((wrapper / "package.json").read_text())
    package["version"] = version()
    package["optionalDependencies"] = {f"mcp-proxy-hub-{p}": version() for p in PLATFORMS}
    write_json(wrapper / "package.json", package)

    native = out / "npm" / f"mcp-proxy-hub-{platform}"
    name = place_binary(binary, native)
    system, cpu = platform.split("-")
    write_json(native / "package.json", {
        "name": f"mcp-proxy-hub-{platform}",
        "version": version(),
        "description": f"The program of mcp-proxy for {platform}",
        "license": package["license"],
        "os": [system],
        "cpu": [cpu],
        "files": [name],
    })


def bundle(binary: pathlib.Path, platform: str, out: pathlib.Path) -> None:
    manifest = json.loads((HERE / "mcpb" / "manifest.json").read_text())
    system = platform.split("-")[0]
    manifest["version"] = version()
    manifest["compatibility"]["platforms"] = [system]
    name = "mcp-proxy.exe" if binary.suffix == ".exe" else "mcp-proxy"
    manifest["server"]["entry_point"] = f"server/{name}"
    path = out / f"mcp-proxy-{version()}-{platform}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest, indent=2) + "\n")
        entry = zipfile.ZipInfo(f"server/{name}")
        entry.external_attr = (stat.S_IFREG | 0o755) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, binary.read_bytes())


def tarball(binary: pathlib.Path, platform: str, out: pathlib.Path) -> None:
    top = f"mcp-proxy-{version()}-{platform}"
    with tarfile.open(out / f"{top}.tar.gz", "w:gz") as archive:
        archive.add(binary, f"{top}/{'mcp-proxy.exe' if binary.suffix == '.exe' else 'mcp-proxy'}")
        for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"]:
            archive.add(ROOT / name, f"{top}/{name}")


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    binary, platform, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    if not binary.is_file():
        sys.exit(f"build.py: there is no binary {binary}; build it with `cargo build --release`")
    if platform not in PLATFORMS:
        sys.exit(f"build.py: the platform is one of {', '.join(PLATFORMS)}")
    out.mkdir(parents=True, exist_ok=True)
    npm(binary, platform, out)
    bundle(binary, platform, out)
    tarball(binary, platform, out)


if __name__ == "__main__":
    main()
