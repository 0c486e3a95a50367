# SPDX-License-Identifier: MIT
"""Find bcc, which distributions package and PyPI does not.

Debian, Ubuntu and Fedora install it for their own Python; it is pure Python on
libbcc, so that any other Python can use the same files. Nothing else of that
folder is made importable.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDERS = (
    Path("/usr/lib/python3/dist-packages/bcc"),
    *sorted(Path("/usr/lib").glob("python3.*/site-packages/bcc")),
)
PACKAGE_HINT = "install python3-bpfcc (Debian, Ubuntu) or python3-bcc (Fedora)"


class BccMissingError(Exception):
    """bcc cannot be used; the text says why and what would help."""


def load_bcc() -> ModuleType:
    """The bcc package; BccMissingError when it is not there or does not work."""
    try:
        if "bcc" not in sys.modules:
            _import_from_system()
        module = importlib.import_module("bcc")
    except (ImportError, OSError) as error:
        raise BccMissingError(f"bcc cannot be loaded ({error}); {PACKAGE_HINT}") from None
    # PyPI's bcc is another program of that name.
    if not hasattr(module, "BPF"):
        raise BccMissingError(f"the bcc of {module.__file__} is not the BPF one; {PACKAGE_HINT}")
    return module


def _import_from_system() -> None:
    if importlib.util.find_spec("bcc") is not None:
        return
    folder = next((folder for folder in FOLDERS if (folder / "__init__.py").is_file()), None)
    if folder is None:
        raise ImportError("there is no such package")
    spec = importlib.util.spec_from_file_location(
        "bcc", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["bcc"]
        raise
