# SPDX-License-Identifier: MIT
"""tools/driver inside the lab: install, reload, verify and revert on a running kernel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.lab.test_lab import _require_lab, _run_inside
from tests.requirements import skip_unless

# A stand-in for the driver: it loads, carries a marker, and can be held in use.
MODULE = """
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/module.h>

static struct dentry *hold;
static const struct file_operations hold_operations = { .owner = THIS_MODULE };
static const int marker __attribute__((used)) = MARKER;

static int __init small_init(void)
{
    hold = debugfs_create_file_unsafe("nvidia_hold", 0400, NULL, NULL, &hold_operations);
    return 0;
}

static void __exit small_exit(void)
{
    debugfs_remove(hold);
}

module_init(small_init);
module_exit(small_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("stand-in for the driver in the kernel lab");
"""


def _build(folder: Path, headers: str, marker: int) -> None:
    folder.mkdir()
    (folder / "nvidia.c").write_text(MODULE)
    (folder / "Kbuild").write_text(f"obj-m := nvidia.o\nccflags-y := -DMARKER={marker}\n")
    built = subprocess.run(
        ["make", "-C", headers, f"M={folder}", "modules"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


def test_install_on_a_running_kernel(tmp_path: Path) -> None:
    headers = _require_lab("bookworm")
    skip_unless("lab", shutil.which("openssl") is not None, "openssl is missing")
    for marker, name in enumerate(("stock", "patched")):
        _build(tmp_path / name, headers, marker)
    _run_inside("bookworm", tmp_path, ["../inside_install/check_install.py"])
