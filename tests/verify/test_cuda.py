# SPDX-License-Identifier: MIT
"""What verify asks of CUDA: the calls, in order, with a recorder in the driver's place."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.bindings import driver as cuda

from vmmprof.drivers.cuda import api, nvml
from vmmprof.errors import NothingMeasuredError, UsageError
from vmmprof.placement import PLAIN, Placement
from vmmprof.verify.cuda import CudaGpu
from vmmprof.verify.pattern import Pattern

ADDRESS = 0x7F00_0000_0000
SIZE = 4 << 20


class Recorder:
    """Answers driver calls; ``fail`` names the call that is refused."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: str | None = None
        self.devices = 1
        self.attributes: dict[str, int | None] = {}

    def call(self, function: str, *arguments: Any) -> Any:
        self.calls.append((function, *arguments))
        if function == self.fail:
            raise api.CudaError(function, 2)
        return {
            "cuDeviceGetCount": self.devices,
            "cuDeviceGetPCIBusId": b"00000000:1B:00.0\0\0",
            "cuMemAddressReserve": ADDRESS,
            "cuMemCreate": "handle",
            "cuMemImportFromShareableHandle": "imported",
            "cuMemExportToShareableHandle": 17,
            "cuPointerGetAttribute": -1,
            "cuMemGetInfo": (SIZE, 2 * SIZE),
            "cuModuleGetFunction": "kernel",
        }.get(function)

    def attribute(self, device: Any, name: str) -> int | None:
        return self.attributes.get(name, 1)

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(api, "call", recorder.call)
    monkeypatch.setattr(api, "attribute", recorder.attribute)
    monkeypatch.setattr(api, "device_count", lambda: recorder.devices)
    monkeypatch.setattr(nvml, "usage", lambda address: nvml.Usage((), 0))
    return recorder


def created(recorder: Recorder, placement: Placement) -> Any:
    with CudaGpu(0) as gpu:
        recorder.calls.clear()
        gpu.create(placement, SIZE)
    (_, size, properties, _), *_ = recorder.calls
    assert size == SIZE
    return properties


def test_plain_memory_is_exportable_and_on_the_device(recorder: Recorder) -> None:
    properties = created(recorder, PLAIN)
    assert properties.location.type == cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    assert properties.location.id == 0
    assert properties.allocFlags.compressionType == 0
    assert (
        properties.requestedHandleTypes
        == cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    )


def test_compressible_memory_asks_for_generic_compression(recorder: Recorder) -> None:
    assert created(recorder, Placement(compressible=True)).allocFlags.compressionType == 1


def test_localized_memory_names_device_and_domain(recorder: Recorder) -> None:
    location = created(recorder, Placement(domain=1)).location
    assert location.type == (cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
    assert (location.localized.deviceId, location.localized.localityDomainId) == (0, 1)


@pytest.mark.parametrize(
    ("fail", "undone"),
    [
        ("cuMemMap", ["cuMemAddressFree"]),
        ("cuMemSetAccess", ["cuMemUnmap", "cuMemAddressFree"]),
    ],
)
def test_a_map_that_fails_is_undone(recorder: Recorder, fail: str, undone: list[str]) -> None:
    with CudaGpu(0) as gpu:
        allocation = gpu.create(PLAIN, SIZE)
        recorder.fail = fail
        with pytest.raises(api.CudaError, match=fail):
            allocation.map()
    names = recorder.names()
    assert names[names.index(fail) + 1 :] == [*undone, "cuDevicePrimaryCtxRelease"]


def test_the_context_is_given_back_when_the_kernel_does_not_load(recorder: Recorder) -> None:
    recorder.fail = "cuModuleLoadData"
    with pytest.raises(api.CudaError), CudaGpu(0):
        pass
    assert recorder.names()[-1] == "cuDevicePrimaryCtxRelease"
    assert recorder.names().count("cuDevicePrimaryCtxRelease") == 1


def test_the_kernel_is_given_address_words_seed_and_shift(recorder: Recorder) -> None:
    with CudaGpu(0) as gpu:
        allocation = gpu.create(PLAIN, SIZE)
        allocation.map()
        allocation.fill(Pattern.COMPRESSIBLE, 99)
    launch = next(call for call in recorder.calls if call[0] == "cuLaunchKernel")
    assert launch[1] == "kernel"
    values, types = launch[-2]
    assert values == (ADDRESS, SIZE // 8, 99, 5)
    assert [t.__name__ for t in types] == ["c_ulong", "c_ulong", "c_ulong", "c_uint"]
    assert recorder.names()[recorder.names().index("cuLaunchKernel") + 1] == "cuCtxSynchronize"


def test_an_ordinal_of_minus_one_is_memory_that_is_not_localized(recorder: Recorder) -> None:
    with CudaGpu(0) as gpu:
        assert gpu.create(PLAIN, SIZE).locality_domain() is None
    recorder.attributes["LOCALITY_DOMAIN_COUNT"] = None
    with CudaGpu(0) as gpu:
        assert gpu.domain_count is None
        assert gpu.create(PLAIN, SIZE).locality_domain() is None


def test_others_are_told(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CudaGpu(0).others() is None
    monkeypatch.setattr(nvml, "usage", lambda address: nvml.Usage((7, 9), 0))
    assert CudaGpu(0).others() == "others use the GPU: PID 7, 9"
    monkeypatch.setattr(nvml, "usage", lambda address: nvml.Usage(None, None))
    assert CudaGpu(0).others() == "NVML cannot tell who uses the GPU"


def test_a_device_that_cannot_be_used_says_why(recorder: Recorder) -> None:
    with pytest.raises(UsageError, match="this machine has CUDA devices 0 to 0"):
        CudaGpu(1)
    recorder.attributes["VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"] = 0
    with pytest.raises(NothingMeasuredError, match="no virtual memory management"):
        CudaGpu(0)
    recorder.devices = 0
    with pytest.raises(NothingMeasuredError, match="reports no device"):
        CudaGpu(0)
