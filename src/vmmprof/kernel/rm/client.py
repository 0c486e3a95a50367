# SPDX-License-Identifier: MIT
"""A resource-manager client for one GPU: objects, controls, and what must be undone."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vmmprof.kernel.rm.errors import RmError, Step
from vmmprof.kernel.rm.status import RmStatus
from vmmprof.kernel.rm.structs import (
    AllocParameters,
    ControlParameters,
    DeviceAllocParameters,
    FreeParameters,
    GetAttachedIdsParams,
    GetIdInfoV2Params,
    GetPciInfoParams,
    RmApiVersion,
    SubdeviceAllocParameters,
)
from vmmprof.kernel.rm.transport import GpuNode, KernelTransport, Transport

CONTROL_FILE = "/dev/nvidiactl"

ESC_FREE = 0x29
ESC_CONTROL = 0x2A
ESC_ALLOC = 0x2B
ESC_CHECK_VERSION = 210

CLASS_CLIENT = 0x41
CLASS_DEVICE = 0x80
CLASS_SUBDEVICE = 0x2080

CMD_GET_ATTACHED_IDS = 0x201
CMD_GET_ID_INFO_V2 = 0x205
CMD_GET_PCI_INFO = 0x21B

# '2' asks for the version without refusing a user that has another one.
_VERSION_QUERY = ord("2")
_NO_GPU = 0xFFFFFFFF
_FIRST_HANDLE = 0xCAF00001


def find_gpu(
    minor: int | None = None, pci_address: str | None = None, transport: Transport | None = None
) -> GpuNode:
    """The GPU with that device file number or PCI address; RmError when there is none.

    With neither given it is the first GPU. A PCI address may be written as CUDA
    and NVML do (``00000000:1B:00.0``) or as sysfs does (``0000:1b:00.0``).
    """
    transport = transport or KernelTransport()
    nodes = transport.gpus()
    if pci_address is not None:
        wanted = normal_pci_address(pci_address)
        for node in nodes:
            if node.pci_address is not None and normal_pci_address(node.pci_address) == wanted:
                return node
        listed = ", ".join(str(node.pci_address) for node in nodes) or "no GPU at all"
        raise RmError(
            Step.FIND_GPU, f"none at PCI address {wanted}; the NVIDIA driver lists {listed}"
        )
    if minor is None:
        minor = nodes[0].minor if nodes else 0
    for node in nodes:
        if node.minor == minor:
            return node
    if nodes:
        listed = ", ".join(node.path for node in nodes)
        raise RmError(Step.FIND_GPU, f"no /dev/nvidia{minor}; the NVIDIA driver lists {listed}")
    return GpuNode(minor, None)


def normal_pci_address(text: str) -> str:
    """``0000:1b:00.0`` for any usual spelling of a PCI address."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


class RmClient:
    """A client with a device and a subdevice; a context manager that frees all of it.

    Opening it needs read and write access to /dev/nvidiactl and the GPU's
    device file, not root and not CUDA. Not for use by several threads.
    """

    def __init__(self, gpu: GpuNode, transport: Transport | None = None) -> None:
        self.gpu = gpu
        self.transport = transport or KernelTransport()
        self._next_handle = _FIRST_HANDLE
        self.handle = 0
        self._undo = ExitStack()
        with ExitStack() as undo:
            self.control_fd = self._open(CONTROL_FILE, undo)
            # The resource manager refuses a device whose file this process does not hold open;
            # opening it also initialises the GPU when nothing else has.
            self._open(gpu.path, undo)
            self.handle = self._alloc_client()
            # Freeing the client frees every object under it.
            undo.callback(self._free_quietly, 0, self.handle)
            self.gpu_id, identity = self._choose(gpu)
            self.device_instance = int(identity.deviceInstance)
            self.device = self.alloc(
                self.handle,
                CLASS_DEVICE,
                DeviceAllocParameters(deviceId=identity.deviceInstance),
                Step.ALLOC_DEVICE,
            )
            self.subdevice = self.alloc(
                self.device,
                CLASS_SUBDEVICE,
                SubdeviceAllocParameters(subDeviceId=identity.subDeviceInstance),
                Step.ALLOC_SUBDEVICE,
            )
            self._undo = undo.pop_all()

    def __enter__(self) -> RmClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the client and with it all its objects, and close its files. May be repeated."""
        self._undo.close()

    def driver_version(self) -> str:
        """Version of the loaded kernel module, such as ``580.159.04``."""
        query = RmApiVersion(cmd=_VERSION_QUERY)
        self.call(ESC_CHECK_VERSION, query, Step.VERSION)
        return bytes(query.versionString).decode(errors="replace")

    def new_handle(self) -> int:
        """A handle that no object of this client has."""
        handle = self._next_handle
        self._next_handle += 1
        return handle

    def alloc(
        self,
        parent: int,
        class_id: int,
        params: ctypes.Structure,
        step: Step,
        detail: str = "",
    ) -> int:
        """Allocate an object under ``parent``; returns its handle, ``params`` are updated."""
        arguments = AllocParameters(
            hRoot=self.handle,
            hObjectParent=parent,
            hObjectNew=self.new_handle(),
            hClass=class_id,
            pAllocParms=ctypes.addressof(params),
            paramsSize=ctypes.sizeof(params),
        )
        self.call(ESC_ALLOC, arguments, step, detail)
        raise_on_status(arguments.status, step, detail)
        return int(arguments.hObjectNew)

    def control(
        self, target: int, command: int, params: ctypes.Structure, step: Step, detail: str = ""
    ) -> None:
        """Send a control to an object; ``params`` are updated."""
        arguments = ControlParameters(
            hClient=self.handle,
            hObject=target,
            cmd=command,
            params=ctypes.addressof(params),
            paramsSize=ctypes.sizeof(params),
        )
        self.call(ESC_CONTROL, arguments, step, detail)
        raise_on_status(arguments.status, step, detail)

    def free(self, parent: int, handle: int) -> None:
        """Free an object and everything under it."""
        arguments = FreeParameters(hRoot=self.handle, hObjectParent=parent, hObjectOld=handle)
        detail = f"object 0x{handle:X}"
        self.call(ESC_FREE, arguments, Step.FREE, detail)
        raise_on_status(arguments.status, Step.FREE, detail)

    def call(self, number: int, arguments: ctypes.Structure, step: Step, detail: str = "") -> None:
        """One ioctl on the control file; RmError when the system refuses it."""
        try:
            self.transport.ioctl(self.control_fd, number, arguments)
        except OSError as error:
            raise RmError(step, detail, errno=error.errno) from error

    @contextmanager
    def device_file(self) -> Iterator[int]:
        """A fresh file of the GPU, closed on leaving."""
        with ExitStack() as undo:
            yield self._open(self.gpu.path, undo)

    @contextmanager
    def control_file(self) -> Iterator[int]:
        """A fresh file of the control device, closed on leaving."""
        with ExitStack() as undo:
            yield self._open(CONTROL_FILE, undo)

    def _open(self, path: str, undo: ExitStack) -> int:
        try:
            fd = self.transport.open(path)
        except OSError as error:
            raise RmError(Step.OPEN, path, errno=error.errno) from error
        undo.callback(self.transport.close, fd)
        return fd

    def _alloc_client(self) -> int:
        arguments = AllocParameters(hClass=CLASS_CLIENT)
        self.call(ESC_ALLOC, arguments, Step.ALLOC_CLIENT)
        raise_on_status(arguments.status, Step.ALLOC_CLIENT)
        return int(arguments.hObjectNew)

    def _free_quietly(self, parent: int, handle: int) -> None:
        # Closing the files, which comes next, frees the client all the same.
        try:
            self.free(parent, handle)
        except RmError:
            return

    def _choose(self, gpu: GpuNode) -> tuple[int, GetIdInfoV2Params]:
        """The GPU id and identity that belong to the device file."""
        attached = GetAttachedIdsParams()
        self.control(self.handle, CMD_GET_ATTACHED_IDS, attached, Step.LIST_GPUS)
        gpu_ids = [gpu_id for gpu_id in attached.gpuIds if gpu_id != _NO_GPU]
        addresses = {gpu_id: self._pci_address(gpu_id) for gpu_id in gpu_ids}
        chosen = None
        if gpu.pci_address is not None:
            wanted = normal_pci_address(gpu.pci_address).rpartition(".")[0]
            chosen = next((i for i, address in addresses.items() if address == wanted), None)
        elif len(gpu_ids) == 1:
            chosen = gpu_ids[0]
        if chosen is None:
            attached_text = ", ".join(map(str, addresses.values())) or "none"
            raise RmError(
                Step.FIND_GPU,
                f"{gpu.path} at PCI address {gpu.pci_address or 'unknown'} is not among the "
                f"attached GPUs: {attached_text}",
            )
        identity = GetIdInfoV2Params(gpuId=chosen)
        self.control(self.handle, CMD_GET_ID_INFO_V2, identity, Step.GPU_IDENTITY)
        return chosen, identity

    def _pci_address(self, gpu_id: int) -> str | None:
        """``0000:1b:00``, or None where the driver does not say."""
        info = GetPciInfoParams(gpuId=gpu_id)
        try:
            self.control(self.handle, CMD_GET_PCI_INFO, info, Step.GPU_IDENTITY)
        except RmError:
            return None
        return f"{info.domain:04x}:{info.bus:02x}:{info.slot:02x}"


def raise_on_status(status: int, step: Step, detail: str = "") -> None:
    """RmError unless the status is NV_OK."""
    if status != RmStatus.NV_OK:
        raise RmError(step, detail, status=status)
