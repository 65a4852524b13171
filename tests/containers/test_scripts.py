"""What the build runs, run here on made-up roots: plugin names, torch's protection, EFA's signature, the check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.support import program

SCRIPTS = Path(__file__).parents[2] / "templates" / "containers" / "scripts"
NAMES = (
    "libnccl-net.so", "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so", "libnccl-ofi-tuner.so",
    "libnccl-tuner-ofi.so", "libnccl-tuner-aws-ofi.so",
)  # fmt: skip


def plugin(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPTS / "plugin.sh"), str(root)], capture_output=True, text=True, check=False
    )


LAYOUTS = {
    # folder, files there as the installers leave them
    "one library": ("opt/amazon/ofi-nccl/lib", ("libnccl-net-ofi.so",)),
    "by architecture": ("opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", ("libnccl-net-ofi.so",)),
    "arm": ("opt/amazon/ofi-nccl/lib/aarch64-linux-gnu", ("libnccl-net-ofi.so",)),
    "tuner apart": ("opt/amazon/ofi-nccl/lib", ("libnccl-net.so", "libnccl-ofi-tuner.so")),
    "the base's own": ("opt/amazon/aws-ofi-nccl/lib", ("libnccl-net.so",)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_name_of_the_plugin_leads_to_it(tmp_path: Path, layout: str) -> None:
    root = tmp_path / "root with space"
    place, files = LAYOUTS[layout]
    folder = root / place
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_text(name)
    (root / "etc").mkdir()
    (root / "etc" / "environment").write_text("LD_LIBRARY_PATH=/opt/amazon/aws-ofi-nccl/lib:/usr/lib\n")
    done = plugin(root)
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        assert (folder / name).is_file(), name
        kind = "tuner" if "tuner" in name and "libnccl-ofi-tuner.so" in files else "net"
        assert kind in (folder / name).read_text()
    conf = (root / "etc/ld.so.conf.d/000-nccl-plugin.conf").read_text().splitlines()
    assert conf == [f"/{place}", "/opt/amazon/efa/lib"]
    assert str((root / "opt/gpt-tune/nccl-plugin").readlink()) == f"/{place}"
    assert (root / "etc/environment").read_text().startswith(f"LD_LIBRARY_PATH=/{place}:")
    assert plugin(root).returncode == 0  # and again


def test_links_that_lead_nowhere_are_mended(tmp_path: Path) -> None:
    folder = tmp_path / "opt/amazon/ofi-nccl/lib"
    folder.mkdir(parents=True)
    (folder / "libnccl-net-ofi.so").write_text("net")
    (folder / "libnccl-net-aws-ofi.so").symlink_to("/gone/libnccl-net.so")
    assert plugin(tmp_path).returncode == 0
    assert (folder / "libnccl-net-aws-ofi.so").read_text() == "net"


@pytest.mark.parametrize("dangling", [False, True])
def test_an_image_without_the_plugin_is_not_built(tmp_path: Path, dangling: bool) -> None:
    """As the seed's own image: links to a library that the installer had put elsewhere, and sockets in the end."""
    folder = tmp_path / "opt/amazon/ofi-nccl/lib"
    folder.mkdir(parents=True)
    if dangling:
        (folder / "libnccl-net-ofi.so").symlink_to("libnccl-net.so.gone")
    done = plugin(tmp_path)
    assert done.returncode == 1
    assert "TCP sockets" in done.stderr
    assert not (tmp_path / "etc/ld.so.conf.d").exists()


def distribution(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def python(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # -S leaves this machine's own packages out; PYTHONPATH stands in for the image's.
    return subprocess.run(
        [sys.executable, "-S", str(SCRIPTS / script), *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_torch_is_written_down_and_a_replacement_noticed(tmp_path: Path) -> None:
    base, later = tmp_path / "base", tmp_path / "later"
    distribution(base, "torch", "2.7.0a0+79aa.nv25.4")
    distribution(base, "pytorch_triton", "3.2.0+git")
    distribution(base, "requests", "2.32.0")
    file = tmp_path / "constraints.txt"
    done = python("protect.py", str(file), PYTHONPATH=str(base))
    assert done.returncode == 0, done.stderr
    assert file.read_text() == "pytorch-triton==3.2.0+git\ntorch==2.7.0a0+79aa.nv25.4\n"
    assert python("check.py", "--constraints", str(file), PYTHONPATH=str(base)).returncode == 0
    distribution(later, "torch", "2.6.0")
    distribution(later, "pytorch-triton", "3.2.0+git")
    replaced = python("check.py", "--constraints", str(file), PYTHONPATH=str(later))
    assert replaced.returncode == 1
    assert "torch 2.7.0a0+79aa.nv25.4 of the base image was replaced by 2.6.0" in replaced.stderr


def test_a_base_without_torch_is_refused(tmp_path: Path) -> None:
    done = python("protect.py", str(tmp_path / "c.txt"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "no torch" in done.stderr
    assert not (tmp_path / "c.txt").exists()


def test_packages_that_do_not_import_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "raise OSError('libcusparseLt.so.0: cannot open shared object file')\n"
    )
    (tmp_path / "fine.py").write_text("__version__ = '1.0'\n")
    done = python("check.py", "--imports", "fine", "broken", "absent", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "ok: fine 1.0" in done.stdout
    assert "import broken: libcusparseLt" in done.stderr
    assert "import absent:" in done.stderr


def checked(
    tmp_path: Path, cache: str, ldd: str = "", library: bytes = b"..ncclNetPlugin_v11.."
) -> subprocess.CompletedProcess[str]:
    """check.py --plugin with a loader that knows `cache` and a library that needs what `ldd` says."""
    (tmp_path / "libnccl-net.so").write_bytes(library)
    stubs = tmp_path / "bin"
    program(stubs / "ldconfig", f"#!/bin/bash\nprintf '%s\\n' '{cache.replace('LIB', str(tmp_path))}'\n")
    program(stubs / "ldd", f"#!/bin/bash\nprintf '%s\\n' '{ldd}'\n")
    program(stubs / "fi_info", "#!/bin/bash\necho 'fi_info: 2.4.0amzn5.0'\n")
    return python("check.py", "--plugin", PATH=f"{stubs}:{os.environ['PATH']}")


GOOD = "\tlibnccl-net.so (libc6,x86-64) => LIB/libnccl-net.so"


def test_the_plugin_is_found_without_a_gpu(tmp_path: Path) -> None:
    done = checked(tmp_path, GOOD, "\tlibcuda.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)")
    assert done.returncode == 0, done.stderr
    assert "libnccl-net.so" in done.stdout
    assert "2.4.0amzn5.0" in done.stdout


@pytest.mark.parametrize(
    ("cache", "ldd", "library", "words"),
    [
        ("\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/libnccl.so.2", "", b"ncclNetPlugin_v11", "TCP sockets"),
        ("\tlibnccl-net-aws-ofi.so (libc6) => LIB/libnccl-net.so", "", b"ncclNetPlugin_v11", "TCP sockets"),
        (GOOD, "\tlibfabric.so.1 => not found", b"ncclNetPlugin_v11", "libfabric.so.1"),
        (GOOD, "", b"an empty library", "no NCCL network plugin"),
    ],
)
def test_a_plugin_that_nccl_would_not_use_fails_the_build(
    tmp_path: Path, cache: str, ldd: str, library: bytes, words: str
) -> None:
    done = checked(tmp_path, cache, ldd, library)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("code", "wanted", "words"),
    [
        (22903, "2.29.3", "ok: NCCL 2.29.3"),
        (22607, "2.29.3", "load NCCL 2.26.7, and 2.29.3"),
        (22907, "", "ok: NCCL 2.29.7"),
    ],
)
def test_the_nccl_that_programs_load_is_compared(tmp_path: Path, code: int, wanted: str, words: str) -> None:
    (tmp_path / "nccl.c").write_text(f"int ncclGetVersion(int *v) {{ *v = {code}; return 0; }}\n")
    subprocess.run(
        ["cc", "-shared", "-o", str(tmp_path / "libnccl.so.2"), str(tmp_path / "nccl.c")], check=True
    )
    done = python("check.py", "--nccl", wanted, LD_LIBRARY_PATH=str(tmp_path))
    assert words in done.stdout + done.stderr
    assert done.returncode == (0 if words.startswith("ok") else 1)


KEY = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"


def efa(tmp_path: Path, version: str, signer: str = KEY) -> tuple[subprocess.CompletedProcess[str], Path]:
    """efa.sh with everything it calls replaced; where the stubs wrote their arguments."""
    stubs, out = tmp_path / "bin", tmp_path / "out"
    out.mkdir()
    record = f"printf '%s\\n' \"$*\" >>'{out}'/"
    program(
        stubs / "curl",
        f'#!/bin/bash\n{record}curl\nwhile [[ $1 != --output ]]; do shift; done; echo x >"$2"\n',
    )
    status = f"[GNUPG:] VALIDSIG {signer} 2026-08-21 0 0 4 0 1 10 00 {signer}"
    program(stubs / "gpg", f"#!/bin/bash\n[[ $* != *--verify* ]] || echo '{status}' >&3\n")
    program(
        stubs / "dpkg-query",
        "#!/bin/bash\nif [[ $* == *ibverbs* ]]; then printf 'ii libibverbs1\\nrc libmlx5-1\\nhi ibverbs-utils\\n'\n"
        "else printf 'rc efa-config\\nii libnccl-ofi-ngc-v2\\n'; fi\nexit 1\n",
    )
    program(stubs / "dpkg", f"#!/bin/bash\n{record}dpkg\n")
    program(stubs / "apt-get", f"#!/bin/bash\n{record}apt-get\n")
    program(stubs / "rm", f'#!/bin/bash\n{record}rm\n[[ $* == *amazon* ]] || exec /bin/rm "$@"\n')
    installer = program(tmp_path / "efa_installer.sh", f"#!/bin/bash\n{record}installer\n")
    program(stubs / "tar", f"#!/bin/bash\nmkdir aws-efa-installer\ncp '{installer}' aws-efa-installer/\n")
    done = subprocess.run(
        ["bash", str(SCRIPTS / "efa.sh"), version, KEY],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}"},
    )  # fmt: skip
    return done, out


@pytest.mark.parametrize(
    ("version", "told"), [("1.49.0", True), ("1.48.0", True), ("1.47.0", False), ("1.43.2", False)]
)
def test_efa_installs_the_whole_of_it_on_nvidias_images(tmp_path: Path, version: str, told: bool) -> None:
    done, out = efa(tmp_path, version)
    assert done.returncode == 0, done.stderr
    assert f"aws-efa-installer-{version}.tar.gz.sig" in (out / "curl").read_text()
    assert (out / "dpkg").read_text() == "--purge --force-all libnccl-ofi-ngc-v2\n"
    removed = "remove -y --allow-change-held-packages libibverbs1 ibverbs-utils"
    assert (out / "apt-get").read_text().splitlines() == [removed, "update"]
    options = (out / "installer").read_text().split()
    assert "--skip-kmod" in options
    assert ("--disable-ngc" in options) == ("--disable-build-ngc" in options) == told


def test_efa_of_another_key_is_not_installed(tmp_path: Path) -> None:
    done, out = efa(tmp_path, "1.49.0", signer="F" * 40)
    assert done.returncode == 1
    assert "not signed with the key" in done.stderr
    assert not (out / "installer").exists()
    assert not (out / "dpkg").exists()
    assert not (out / "apt-get").exists()
