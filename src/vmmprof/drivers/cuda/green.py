# SPDX-License-Identifier: MIT
"""Green contexts: a context on some of a device's SMs, by number or by locality domain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver as cuda

from vmmprof.drivers.cuda import api

_SM = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
_DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM
_OF_DOMAIN = 2  # CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID
DOMAIN, EACH_DOMAIN = "domain", "domains"


def domain_of(green: str, worker: int, domain_count: int) -> int | None:
    """The locality domain that a worker of a ``green`` variant runs on, None for a part of SMs.

    With ``domains`` the workers take turns.
    """
    if green == EACH_DOMAIN:
        return worker % max(1, domain_count)
    if green.startswith(DOMAIN):
        return int(green.removeprefix(DOMAIN))
    return None


def _resource(device: Any, green: str, domain: int | None) -> Any:
    """The SMs; drivers before CUDA 13.1 split by number alone."""
    whole = api.call("cuDeviceGetDevResource", device, _SM)
    if domain is None:
        groups, _, _ = api.call("cuDevSmResourceSplitByCount", 1, whole, 0, int(green))
        return groups[0]
    wanted = cuda.CU_DEV_SM_RESOURCE_GROUP_PARAMS()
    wanted.smCount = 0  # as many as there are
    wanted.flags = _OF_DOMAIN
    wanted.localityDomainId = domain
    groups, _ = api.call("cuDevSmResourceSplit", 1, whole, 0, [wanted])
    return groups[0]


@contextmanager
def green_context(ordinal: int, green: str, domain: int | None) -> Iterator[Any]:
    """A context on those SMs; its device's primary context must be held all the while."""
    device = api.call("cuDeviceGet", ordinal)
    description = api.call("cuDevResourceGenerateDesc", [_resource(device, green, domain)], 1)
    context = api.call("cuGreenCtxCreate", description, device, _DEFAULT_STREAM)
    try:
        yield api.call("cuCtxFromGreenCtx", context)
    finally:
        api.call("cuGreenCtxDestroy", context)


def sm_count(ordinal: int, green: str, domain: int | None) -> int:
    """How many SMs such a context has; CudaError where it cannot be made."""
    return int(_resource(api.call("cuDeviceGet", ordinal), green, domain).sm.smCount)
