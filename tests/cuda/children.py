# SPDX-License-Identifier: MIT
"""What child processes do with the real cuda.bindings: ``python -m tests.cuda.children NAME``.

Each function prints one JSON value. Results are CUresult names without ``CUDA_``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cuda

from tests import stub_cuda

MIB = 1 << 20
SIZE = 2 * MIB
DEVICE = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
DOMAIN = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
HOST = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
READ_WRITE = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
MINIMUM = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
ORDINAL = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL


def name(answer: tuple[Any, ...]) -> str:
    return str(answer[0].name).removeprefix("CUDA_")


def must(answer: tuple[Any, ...]) -> Any:
    assert name(answer) == "SUCCESS", answer
    return answer[1] if len(answer) == 2 else answer[1:]


def enter(device: int = 0) -> Any:
    """Initialise and make the device's primary context current."""
    must(cuda.cuInit(0))
    context = must(cuda.cuDevicePrimaryCtxRetain(must(cuda.cuDeviceGet(device))))
    must(cuda.cuCtxSetCurrent(context))
    return context


def prop(
    domain: int | None = None, device: int = 0, *, compressible: bool = False, rdma: bool = False
) -> Any:
    p = cuda.CUmemAllocationProp()
    p.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    if domain is None:
        p.location.type = DEVICE
        p.location.id = device
    else:
        p.location.type = DOMAIN
        p.location.localized.deviceId = device
        p.location.localized.localityDomainId = domain
    p.allocFlags.compressionType = int(compressible)
    p.allocFlags.gpuDirectRDMACapable = int(rdma)
    return p


def access(device: int = 0, location: Any = DEVICE) -> Any:
    desc = cuda.CUmemAccessDesc()
    desc.location.type = location
    desc.location.id = device
    desc.flags = READ_WRITE
    return desc


class Memory:
    """A 2 MiB range, an allocation and, unless ``mapped`` is false, its mapping."""

    def __init__(self, properties: Any = None, size: int = SIZE, *, mapped: bool = True) -> None:
        self.size = size
        self.address = must(cuda.cuMemAddressReserve(size, 0, 0, 0))
        self.handle = must(cuda.cuMemCreate(size, properties or prop(), 0))
        if mapped:
            must(cuda.cuMemMap(self.address, size, 0, self.handle, 0))
            must(cuda.cuMemSetAccess(self.address, size, [access()], 1))

    def at(self, offset: int) -> Any:
        return cuda.CUdeviceptr(int(self.address) + offset)

    def give_back(self) -> None:
        must(cuda.cuMemUnmap(self.address, self.size))
        must(cuda.cuMemRelease(self.handle))
        must(cuda.cuMemAddressFree(self.address, self.size))


def read_back(properties: Any) -> list[int]:
    """Ordinal and compression type that memory with these properties reads back."""
    memory = Memory(properties)
    ordinal = must(cuda.cuPointerGetAttribute(ORDINAL, memory.address))
    granted = must(cuda.cuMemGetAllocationPropertiesFromHandle(memory.handle))
    memory.give_back()
    return [int(ordinal), int(granted.allocFlags.compressionType)]


# -- misuse: each function makes one mistake and returns the driver's answer ----


def _stale_handle() -> Any:
    handle = must(cuda.cuMemCreate(SIZE, prop(), 0))
    must(cuda.cuMemRelease(handle))
    other = must(cuda.cuMemCreate(SIZE, prop(), 0))
    answer = cuda.cuMemRelease(handle)
    must(cuda.cuMemRelease(other))
    return answer


def _stale_address() -> Any:
    address = must(cuda.cuMemAddressReserve(SIZE, 0, 0, 0))
    must(cuda.cuMemAddressFree(address, SIZE))
    other = must(cuda.cuMemAddressReserve(SIZE, 0, 0, 0))
    answer = cuda.cuMemAddressFree(address, SIZE)
    must(cuda.cuMemAddressFree(other, SIZE))
    return answer


def _unmap_twice() -> Any:
    memory = Memory()
    must(cuda.cuMemUnmap(memory.address, SIZE))
    answer = cuda.cuMemUnmap(memory.address, SIZE)
    must(cuda.cuMemRelease(memory.handle))
    must(cuda.cuMemAddressFree(memory.address, SIZE))
    return answer


def _release_twice_mapped() -> Any:
    memory = Memory()
    must(cuda.cuMemRelease(memory.handle))
    answer = cuda.cuMemRelease(memory.handle)
    must(cuda.cuMemUnmap(memory.address, SIZE))
    must(cuda.cuMemAddressFree(memory.address, SIZE))
    return answer


def _map_more_than_allocated() -> Any:
    address = must(cuda.cuMemAddressReserve(2 * SIZE, 0, 0, 0))
    handle = must(cuda.cuMemCreate(SIZE, prop(), 0))
    answer = cuda.cuMemMap(address, 2 * SIZE, 0, handle, 0)
    must(cuda.cuMemRelease(handle))
    must(cuda.cuMemAddressFree(address, 2 * SIZE))
    return answer


def _with_memory(mistake: Callable[[Memory], Any], size: int = SIZE) -> Callable[[], Any]:
    def run() -> Any:
        memory = Memory(size=size)
        answer = mistake(memory)
        memory.give_back()
        return answer

    return run


def _with_unmapped(mistake: Callable[[Memory], Any]) -> Callable[[], Any]:
    def run() -> Any:
        memory = Memory(size=2 * SIZE, mapped=False)
        answer = mistake(memory)
        must(cuda.cuMemRelease(memory.handle))
        must(cuda.cuMemAddressFree(memory.address, 2 * SIZE))
        return answer

    return run


def _create(change: Callable[[Any], None], size: int = SIZE) -> Callable[[], Any]:
    def run() -> Any:
        properties = prop()
        change(properties)
        return cuda.cuMemCreate(size, properties, 0)

    return run


def _set_location(properties: Any, kind: Any, identifier: int) -> None:
    properties.location.type = kind
    properties.location.id = identifier


def _without_context() -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(cuda.cuMemCreate(SIZE, prop(), 0)))
    thread.start()
    thread.join()
    return answers[0]


def _set_reserved(properties: Any) -> None:
    # The bindings do not show the reserved bytes: the last four of allocFlags.
    import ctypes

    ctypes.memset(properties.getPtr() + 28, 1, 1)


def _nothing(_: Any) -> None:
    pass


MISUSES: dict[str, tuple[Callable[[], Any], str]] = {
    "init_flags": (lambda: cuda.cuInit(1), "ERROR_INVALID_VALUE"),
    "device_ordinal": (lambda: cuda.cuDeviceGet(1), "ERROR_INVALID_DEVICE"),
    "reserve_odd_size": (
        lambda: cuda.cuMemAddressReserve(SIZE + 1, 0, 0, 0),
        "ERROR_INVALID_VALUE",
    ),
    "reserve_nothing": (lambda: cuda.cuMemAddressReserve(0, 0, 0, 0), "ERROR_INVALID_VALUE"),
    "reserve_flags": (lambda: cuda.cuMemAddressReserve(SIZE, 0, 0, 1), "ERROR_INVALID_VALUE"),
    "reserve_alignment": (
        lambda: cuda.cuMemAddressReserve(SIZE, 3 << 20, 0, 0),
        "ERROR_INVALID_VALUE",
    ),
    "create_small": (_create(_nothing, MIB), "ERROR_INVALID_VALUE"),
    "create_nothing": (_create(_nothing, 0), "ERROR_INVALID_VALUE"),
    "create_flags": (lambda: cuda.cuMemCreate(SIZE, prop(), 1), "ERROR_INVALID_VALUE"),
    "create_type": (
        _create(
            lambda p: setattr(p, "type", cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_INVALID)
        ),
        "ERROR_INVALID_VALUE",
    ),
    "create_reserved": (_create(_set_reserved), "ERROR_INVALID_VALUE"),
    "create_usage": (
        _create(lambda p: setattr(p.allocFlags, "usage", 0x80)),
        "ERROR_INVALID_VALUE",
    ),
    "create_compression": (
        _create(lambda p: setattr(p.allocFlags, "compressionType", 2)),
        "ERROR_INVALID_VALUE",
    ),
    "create_no_device": (
        _create(lambda p: _set_location(p, DEVICE, 1)),
        "ERROR_INVALID_DEVICE",
    ),
    "create_on_host": (_create(lambda p: _set_location(p, HOST, 0)), "ERROR_INVALID_VALUE"),
    # id of a localized location is deviceId | localityDomainId << 8.
    "create_domain_as_device": (
        _create(lambda p: _set_location(p, DEVICE, 1 << 8)),
        "ERROR_INVALID_DEVICE",
    ),
    "create_domain_by_id": (
        _create(lambda p: _set_location(p, DOMAIN, 1)),
        "ERROR_INVALID_DEVICE",
    ),
    "create_no_domain": (
        _create(lambda p: _set_location(p, DOMAIN, 2 << 8)),
        "ERROR_INVALID_VALUE",
    ),
    "create_behind_union": (
        _create(lambda p: _set_location(p, DOMAIN, 1 << 16)),
        "ERROR_INVALID_VALUE",
    ),
    "create_without_context": (_without_context, "ERROR_INVALID_CONTEXT"),
    "granularity_type": (
        lambda: cuda.cuMemGetAllocationGranularity(cuda.CUmemAllocationProp(), MINIMUM),
        "ERROR_INVALID_VALUE",
    ),
    "map_unreserved": (
        _with_unmapped(lambda m: cuda.cuMemMap(m.at(64 << 30), SIZE, 0, m.handle, 0)),
        "ERROR_INVALID_VALUE",
    ),
    "map_over_the_end": (
        _with_unmapped(lambda m: cuda.cuMemMap(m.at(SIZE), 2 * SIZE, 0, m.handle, 0)),
        "ERROR_INVALID_VALUE",
    ),
    "map_more_than_allocated": (_map_more_than_allocated, "ERROR_INVALID_VALUE"),
    "map_odd_size": (
        _with_unmapped(lambda m: cuda.cuMemMap(m.address, MIB, 0, m.handle, 0)),
        "ERROR_INVALID_VALUE",
    ),
    "map_odd_address": (
        _with_unmapped(lambda m: cuda.cuMemMap(m.at(MIB), SIZE, 0, m.handle, 0)),
        "ERROR_INVALID_VALUE",
    ),
    "map_offset": (
        _with_unmapped(lambda m: cuda.cuMemMap(m.address, SIZE, SIZE, m.handle, 0)),
        "ERROR_INVALID_VALUE",
    ),
    "map_flags": (
        _with_unmapped(lambda m: cuda.cuMemMap(m.address, SIZE, 0, m.handle, 1)),
        "ERROR_INVALID_VALUE",
    ),
    "map_no_handle": (
        _with_unmapped(lambda m: cuda.cuMemMap(m.address, SIZE, 0, 12345, 0)),
        "ERROR_INVALID_VALUE",
    ),
    "map_twice": (
        _with_memory(lambda m: cuda.cuMemMap(m.address, SIZE, 0, m.handle, 0)),
        "ERROR_INVALID_VALUE",
    ),
    "access_unmapped": (
        _with_unmapped(lambda m: cuda.cuMemSetAccess(m.address, SIZE, [access()], 1)),
        "ERROR_INVALID_VALUE",
    ),
    "access_too_large": (
        _with_memory(lambda m: cuda.cuMemSetAccess(m.address, 2 * SIZE, [access()], 1)),
        "ERROR_INVALID_VALUE",
    ),
    "access_part": (
        _with_memory(lambda m: cuda.cuMemSetAccess(m.address, SIZE, [access()], 1), size=2 * SIZE),
        "ERROR_INVALID_VALUE",
    ),
    "access_no_device": (
        _with_memory(lambda m: cuda.cuMemSetAccess(m.address, SIZE, [access(1)], 1)),
        "ERROR_INVALID_DEVICE",
    ),
    "access_per_domain": (
        _with_memory(lambda m: cuda.cuMemSetAccess(m.address, SIZE, [access(0, DOMAIN)], 1)),
        "ERROR_INVALID_VALUE",
    ),
    "unmap_unmapped": (
        _with_unmapped(lambda m: cuda.cuMemUnmap(m.address, SIZE)),
        "ERROR_INVALID_VALUE",
    ),
    "unmap_twice": (_unmap_twice, "ERROR_INVALID_VALUE"),
    "unmap_part": (
        _with_memory(lambda m: cuda.cuMemUnmap(m.address, SIZE), size=2 * SIZE),
        "ERROR_INVALID_VALUE",
    ),
    "release_twice": (_stale_handle, "ERROR_INVALID_VALUE"),
    "release_twice_mapped": (_release_twice_mapped, "ERROR_INVALID_VALUE"),
    "free_mapped": (
        _with_memory(lambda m: cuda.cuMemAddressFree(m.address, SIZE)),
        "ERROR_INVALID_VALUE",
    ),
    "free_part": (
        _with_unmapped(lambda m: cuda.cuMemAddressFree(m.address, SIZE)),
        "ERROR_INVALID_VALUE",
    ),
    "free_inside": (
        _with_unmapped(lambda m: cuda.cuMemAddressFree(m.at(SIZE), 2 * SIZE)),
        "ERROR_INVALID_VALUE",
    ),
    "free_twice": (_stale_address, "ERROR_INVALID_VALUE"),
    "pointer_unmapped": (
        _with_unmapped(lambda m: cuda.cuPointerGetAttribute(ORDINAL, m.address)),
        "ERROR_INVALID_VALUE",
    ),
    "release_context_twice": (
        lambda: (must(cuda.cuDevicePrimaryCtxRelease(0)), cuda.cuDevicePrimaryCtxRelease(0))[1],
        "ERROR_INVALID_CONTEXT",
    ),
}
"""The mistake and the answer to it. The last one takes the context away."""


def misuses() -> dict[str, list[object]]:
    """By mistake: the answer, and the violations that the ledger gained."""
    enter()
    ledger = Path(os.environ["STUB_CUDA_LEDGER"])
    seen = 0
    results: dict[str, list[object]] = {}
    for label, (mistake, _) in MISUSES.items():
        answer = name(mistake())
        count = stub_cuda.read_ledger(ledger).violation_count
        results[label] = [answer, count - seen]
        seen = count
    return results


def correct() -> dict[str, object]:
    """Everything a correct program does, on all devices and in every placement."""
    must(cuda.cuInit(0))
    count = must(cuda.cuDeviceGetCount())
    for device in range(count):
        must(cuda.cuCtxSetCurrent(must(cuda.cuDevicePrimaryCtxRetain(device))))
        for properties in (
            prop(device=device),
            prop(0, device),
            prop(1, device, compressible=True, rdma=True),
        ):
            memory = Memory(properties, 4 * MIB)
            # Access for every device in one call; the handle goes before its mapping.
            must(
                cuda.cuMemSetAccess(
                    memory.address, 4 * MIB, [access(i) for i in range(count)], count
                )
            )
            must(cuda.cuMemRelease(memory.handle))
            must(cuda.cuMemUnmap(memory.address, 4 * MIB))
            must(cuda.cuMemAddressFree(memory.address, 4 * MIB))
        must(cuda.cuDevicePrimaryCtxRelease(device))
    return {"devices": count}


def chunks() -> dict[str, object]:
    """One range of four chunks: one access call, one unmap call for all."""
    enter()
    address = must(cuda.cuMemAddressReserve(4 * SIZE, 0, 0, 0))
    handles = [must(cuda.cuMemCreate(SIZE, prop(), 0)) for _ in range(4)]
    for i, handle in enumerate(handles):
        must(cuda.cuMemMap(cuda.CUdeviceptr(int(address) + i * SIZE), SIZE, 0, handle, 0))
    must(cuda.cuMemSetAccess(address, 4 * SIZE, [access()], 1))
    must(cuda.cuMemUnmap(address, 4 * SIZE))
    for handle in handles:
        must(cuda.cuMemRelease(handle))
    must(cuda.cuMemAddressFree(address, 4 * SIZE))
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return {}


def leak() -> dict[str, object]:
    """Leaves one of everything behind."""
    enter()
    Memory(prop(1))
    return {}


def read_backs() -> dict[str, object]:
    """Ordinal and compression of eight plain, localized and compressible allocations each."""
    enter()
    return {
        "plain": [read_back(prop()) for _ in range(8)],
        "localized": [read_back(prop(1)) for _ in range(8)],
        "compressible": [read_back(prop(compressible=True)) for _ in range(8)],
    }


def domains() -> dict[str, object]:
    """What the device says of locality domains, and how a localized request ends."""
    enter()
    attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT
    answer = cuda.cuDeviceGetAttribute(attribute, 0)
    created = cuda.cuMemCreate(SIZE, prop(0), 0)
    localized: dict[str, object] = {"create": name(created)}
    if name(created) == "SUCCESS":
        must(cuda.cuMemRelease(created[1]))
        localized["ordinal"] = read_back(prop(0))[0]
    return {"attribute": name(answer), "count": answer[1], **localized}


def rdma() -> dict[str, object]:
    """Granularity queries with RDMA, plain and localized."""
    enter()
    return {
        label: name(cuda.cuMemGetAllocationGranularity(prop(domain, rdma=True), MINIMUM))
        for label, domain in (("plain", None), ("localized", 0))
    }


def fill() -> dict[str, object]:
    """Fills the card, plain and then each domain: pieces of 2 MiB that fit, and free memory."""
    enter()
    fitted: dict[str, object] = {}
    for label, properties in (("plain", prop()), ("domain 0", prop(0))):
        handles = []
        while name(answer := cuda.cuMemCreate(SIZE, properties, 0)) == "SUCCESS":
            handles.append(answer[1])
        free_bytes, total_bytes = must(cuda.cuMemGetInfo())
        fitted[label] = [len(handles), name(answer), free_bytes, total_bytes]
        for handle in handles:
            must(cuda.cuMemRelease(handle))
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return fitted


def answers() -> list[str]:
    """The answers of four identical cycles, call by call; each is cleaned up."""
    enter()
    results = []
    for _ in range(4):
        address = must(cuda.cuMemAddressReserve(SIZE, 0, 0, 0))
        handle = must(cuda.cuMemCreate(SIZE, prop(), 0))
        answer = cuda.cuMemMap(address, SIZE, 0, handle, 0)
        results.append(name(answer))
        # Takes the mapping away where there is one: an answer need not be the truth.
        cuda.cuMemUnmap(address, SIZE)
        cuda.cuMemRelease(handle)
        cuda.cuMemAddressFree(address, SIZE)
    results.append(name(cuda.cuDevicePrimaryCtxRelease(0)))
    return results


def caught_signals() -> list[str]:
    """Names of the signals that came while four allocations were made and given back."""
    received: list[str] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: received.append(signal.Signals(n).name))
    enter()
    for _ in range(4):
        Memory().give_back()
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return received


def fork() -> dict[str, object]:
    """A child that is forked after cuInit tries to use CUDA."""
    enter()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, name(cuda.cuMemGetInfo()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return {"child": os.read(reader, 100).decode()}


def threads() -> dict[str, object]:
    """Sixteen threads make and give back fifty allocations each."""
    context = enter()

    def work() -> None:
        must(cuda.cuCtxSetCurrent(context))
        for i in range(50):
            Memory(prop(i % 2)).give_back()

    workers = [threading.Thread(target=work) for _ in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return {}


def launches() -> list[str]:
    """Answers to a launch, one with a block that is too large, one after the unload."""
    enter()
    module = must(cuda.cuModuleLoadData(b"image"))
    function = must(cuda.cuModuleGetFunction(module, b"kernel"))
    stream = must(cuda.cuStreamCreate(0))

    def launch(threads: int) -> str:
        return name(cuda.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, 0, 0))

    answers = [launch(32), launch(2048)]
    must(cuda.cuStreamSynchronize(stream))
    answers.append(name(cuda.cuModuleUnload(cuda.CUmodule(int(stream)))))
    must(cuda.cuModuleUnload(module))
    answers.append(launch(32))
    must(cuda.cuStreamDestroy(stream))
    answers.append(name(cuda.cuStreamSynchronize(stream)))
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return answers


def pool_props(domain: int | None = None) -> Any:
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = prop(domain).location
    return properties


def pool_state(pool: Any) -> list[int]:
    """MiB reserved and in use."""
    attribute = cuda.CUmemPool_attribute
    return [
        int(must(cuda.cuMemPoolGetAttribute(pool, which))) // MIB
        for which in (
            attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        )
    ]


def pools() -> dict[str, object]:
    """A localized pool, cold and warm: what it reserves and uses, step by step."""
    enter()
    pool = must(cuda.cuMemPoolCreate(pool_props(1)))
    seen: dict[str, object] = {}
    pointer = must(cuda.cuMemAllocFromPoolAsync(5 * MIB, pool, 0))
    seen["allocated"] = pool_state(pool)
    seen["ordinal"] = int(must(cuda.cuPointerGetAttribute(ORDINAL, pointer)))
    must(cuda.cuMemFreeAsync(pointer, 0))
    seen["freed"] = pool_state(pool)
    must(cuda.cuStreamSynchronize(0))
    seen["cold"] = pool_state(pool)
    threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    must(cuda.cuMemPoolSetAttribute(pool, threshold, cuda.cuuint64_t(2**64 - 1)))
    must(cuda.cuMemFreeAsync(must(cuda.cuMemAllocFromPoolAsync(5 * MIB, pool, 0)), 0))
    must(cuda.cuCtxSynchronize())
    seen["warm"] = pool_state(pool)
    must(cuda.cuMemPoolTrimTo(pool, 2 * MIB))
    seen["trimmed"] = pool_state(pool)
    seen["free of the card"] = must(cuda.cuMemGetInfo())[0] // MIB
    seen["freed twice"] = name(cuda.cuMemFreeAsync(pointer, 0))
    # Destroyed while in use: it goes with its last allocation.
    last = must(cuda.cuMemAllocFromPoolAsync(5 * MIB, pool, 0))
    must(cuda.cuMemPoolDestroy(pool))
    seen["destroyed"] = name(cuda.cuMemAllocFromPoolAsync(MIB, pool, 0))
    must(cuda.cuMemFreeAsync(last, 0))
    seen["free in the end"] = must(cuda.cuMemGetInfo())[0] // MIB
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return seen


def default_pool() -> dict[str, object]:
    """The default pool is not localized, is limited by the card and goes with the context."""
    enter()
    pool = must(cuda.cuDeviceGetDefaultMemPool(0))
    pointer = must(cuda.cuMemAllocAsync(6 * MIB, 0))
    seen: dict[str, object] = {
        "state": pool_state(pool),
        "ordinal": int(must(cuda.cuPointerGetAttribute(ORDINAL, pointer))),
        "too much": name(cuda.cuMemAllocAsync(1 << 40, 0)),
        "destroyed": name(cuda.cuMemPoolDestroy(pool)),
    }
    must(cuda.cuMemFreeAsync(pointer, 0))
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return seen


def time_pool(threshold: str) -> list[int]:
    """ns of four allocations of 4 MiB, each freed and waited for, under a release threshold."""
    import time

    enter()
    pool = must(cuda.cuMemPoolCreate(pool_props()))
    attribute = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    must(cuda.cuMemPoolSetAttribute(pool, attribute, cuda.cuuint64_t(int(threshold))))
    durations = []
    for _ in range(4):
        begin = time.perf_counter_ns()
        pointer = must(cuda.cuMemAllocFromPoolAsync(4 * MIB, pool, 0))
        durations.append(time.perf_counter_ns() - begin)
        must(cuda.cuMemFreeAsync(pointer, 0))
        must(cuda.cuStreamSynchronize(0))
    return durations


SM = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM


def domain_groups(*domains: int) -> list[Any]:
    groups = []
    for domain in domains:
        group = cuda.CU_DEV_SM_RESOURCE_GROUP_PARAMS()
        group.flags = cuda.CUdevSmResourceGroup_flags.CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID
        group.localityDomainId = domain
        groups.append(group)
    return groups


def green_contexts() -> dict[str, object]:
    """A green context on each domain's multiprocessors, and memory allocated inside."""
    enter()
    whole = must(cuda.cuDeviceGetDevResource(0, SM))
    parts, rest = must(cuda.cuDevSmResourceSplit(2, whole, 0, domain_groups(0, 1)))
    seen: dict[str, object] = {
        "whole": whole.sm.smCount,
        "parts": [[part.sm.smCount, part.sm.localityDomainId] for part in parts],
        "rest": int(rest.type),
        "no domain": name(cuda.cuDevSmResourceSplit(1, whole, 0, domain_groups(2))),
    }
    inside = []
    for part in parts:
        green = must(cuda.cuGreenCtxCreate(must(cuda.cuDevResourceGenerateDesc([part], 1)), 0, 1))
        must(cuda.cuCtxSetCurrent(must(cuda.cuCtxFromGreenCtx(green))))
        Memory(prop(1)).give_back()
        inside.append(must(cuda.cuGreenCtxGetDevResource(green, SM)).sm.smCount)
        must(cuda.cuCtxSetCurrent(must(cuda.cuDevicePrimaryCtxRetain(0))))
        must(cuda.cuGreenCtxDestroy(green))
        must(cuda.cuDevicePrimaryCtxRelease(0))
    seen["inside"] = inside
    seen["destroyed"] = name(cuda.cuCtxFromGreenCtx(green))
    # A green context keeps the primary one.
    last = must(cuda.cuGreenCtxCreate(must(cuda.cuDevResourceGenerateDesc([whole], 1)), 0, 1))
    must(cuda.cuDevicePrimaryCtxRelease(0))
    active = [must(cuda.cuDevicePrimaryCtxGetState(0))[1]]
    must(cuda.cuGreenCtxDestroy(last))
    active.append(must(cuda.cuDevicePrimaryCtxGetState(0))[1])
    seen["active"] = active
    return seen


def split_by_count() -> dict[str, object]:
    """As many parts of 20 multiprocessors as there are, and what stays."""
    enter()
    whole = must(cuda.cuDeviceGetDevResource(0, SM))
    parts, count, rest = must(cuda.cuDevSmResourceSplitByCount(99, whole, 0, 20))
    must(cuda.cuDevicePrimaryCtxRelease(0))
    return {
        "count": count,
        "sizes": [part.sm.smCount for part in parts[:count]],
        "rest": rest.sm.smCount,
        "made up": name(cuda.cuDevResourceGenerateDesc([cuda.CUdevResource()], 1)),
        "two splits": name(
            cuda.cuDevResourceGenerateDesc(
                [parts[0], must(cuda.cuDevSmResourceSplitByCount(1, whole, 0, 20))[0][0]], 2
            )
        ),
    }


def contexts_by_thread() -> list[int]:
    """The device that each of two threads finds current after both have set theirs."""
    must(cuda.cuInit(0))
    both_set = threading.Barrier(2)
    found = [-1, -1]

    def work(device: int) -> None:
        must(cuda.cuCtxSetCurrent(must(cuda.cuDevicePrimaryCtxRetain(device))))
        both_set.wait()
        found[device] = int(must(cuda.cuCtxGetDevice()))
        must(cuda.cuDevicePrimaryCtxRelease(device))

    workers = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def time_create(size_mib: str) -> int:
    """Shortest of 20 localized creates in ns."""
    import time

    enter()
    size = int(size_mib) * MIB
    durations = []
    for _ in range(20):
        begin = time.perf_counter_ns()
        handle = must(cuda.cuMemCreate(size, prop(0), 0))
        durations.append(time.perf_counter_ns() - begin)
        must(cuda.cuMemRelease(handle))
    return min(durations)


def all_results() -> dict[str, int]:
    """Every CUresult that the bindings know and the driver can name."""
    named = {}
    for result in cuda.CUresult:
        answer = cuda.cuGetErrorName(result)
        if name(answer) == "SUCCESS":
            named[answer[1].decode()] = int(result)
    return named


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
