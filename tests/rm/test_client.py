# SPDX-License-Identifier: MIT
from __future__ import annotations

import errno

import pytest

from tests.simulated.card import Card, Fault
from tests.simulated.rm import PCI_ADDRESS, SimulatedRm
from vmmprof.kernel.rm import GpuNode, RmClient, RmError, RmStatus, Step, find_gpu
from vmmprof.kernel.rm.client import normal_pci_address


def opened(rm: SimulatedRm) -> RmClient:
    return RmClient(find_gpu(transport=rm), rm)


def test_a_client_leaves_no_object_and_no_file() -> None:
    rm = SimulatedRm()
    with opened(rm) as client:
        assert client.driver_version() == "580.159.04"
        assert len(rm.objects) == 3
        assert [file.path for file in rm.files.values()] == ["/dev/nvidiactl", "/dev/nvidia0"]
    assert not rm.objects
    assert not rm.files


def test_closing_twice_frees_once() -> None:
    rm = SimulatedRm()
    client = opened(rm)
    client.close()
    client.close()
    assert rm.log.count("free class 0x41") == 1


@pytest.mark.parametrize(
    ("refused", "step"),
    [
        (1, Step.ALLOC_CLIENT),
        (2, Step.ALLOC_DEVICE),
        (3, Step.ALLOC_SUBDEVICE),
    ],
)
def test_a_step_that_fails_undoes_those_before_it(refused: int, step: Step) -> None:
    rm = SimulatedRm()
    count = 0
    answer = rm._alloc

    def refuse_nth(arguments: object) -> None:
        nonlocal count
        count += 1
        if count == refused:
            arguments.status = RmStatus.NV_ERR_INSUFFICIENT_RESOURCES  # type: ignore[attr-defined]
        else:
            answer(arguments)

    rm._alloc = refuse_nth  # type: ignore[method-assign]
    with pytest.raises(RmError, match="NV_ERR_INSUFFICIENT_RESOURCES") as caught:
        opened(rm)
    assert caught.value.step is step
    assert not rm.objects
    assert not rm.files


def test_the_device_file_is_held_open_while_the_device_lives() -> None:
    """The RM refuses the device otherwise; the simulation does too."""
    rm = SimulatedRm()
    paths = rm.open

    def without_device(path: str) -> int:
        return paths("/dev/nvidiactl")

    rm.open = without_device  # type: ignore[method-assign]
    with pytest.raises(RmError, match="usually the GPU's device file is not held open"):
        opened(rm)


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ENOENT, "no NVIDIA driver is loaded"),
        (errno.EACCES, "this user may not read and write the device file"),
        (errno.EPERM, "the container or its device cgroup"),
    ],
)
def test_a_file_that_cannot_be_opened_is_named_with_the_usual_cause(
    number: int, cause: str
) -> None:
    rm = SimulatedRm()

    def refuse(path: str) -> int:
        raise OSError(number, "refused")

    rm.open = refuse  # type: ignore[method-assign]
    with pytest.raises(RmError, match=cause) as caught:
        opened(rm)
    assert "/dev/nvidiactl" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_ioctl_that_the_system_refuses_names_the_step() -> None:
    rm = SimulatedRm()
    with opened(rm) as client:

        def refuse(*_: object) -> None:
            raise OSError(errno.EIO, "refused")

        rm.ioctl, working = refuse, rm.ioctl  # type: ignore[method-assign]
        with pytest.raises(RmError, match="ask for the driver version: Input/output error"):
            client.driver_version()
        rm.ioctl = working  # type: ignore[method-assign]


def test_handles_differ() -> None:
    with opened(SimulatedRm()) as client:
        assert len({client.new_handle() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "text", ["0000:1b:00.0", "00000000:1B:00.0", "0000:1B:00.0", " 0000:1b:00.0\n"]
)
def test_every_spelling_of_a_pci_address_finds_the_gpu(text: str) -> None:
    assert normal_pci_address(text) == PCI_ADDRESS
    assert find_gpu(pci_address=text, transport=SimulatedRm()) == GpuNode(0, PCI_ADDRESS)


def test_another_pci_domain_is_another_gpu() -> None:
    with pytest.raises(RmError, match=r"none at PCI address 0001:1b:00\.0; .* lists 0000:1b:00\.0"):
        find_gpu(pci_address="0001:1b:00.0", transport=SimulatedRm())


def test_a_minor_that_is_not_there_is_refused_where_gpus_are_listed() -> None:
    with pytest.raises(RmError, match=r"no /dev/nvidia3; .* lists /dev/nvidia0"):
        find_gpu(minor=3, transport=SimulatedRm())


def test_without_a_list_of_gpus_the_only_attached_one_is_taken() -> None:
    rm = SimulatedRm(listed=False)
    assert find_gpu(transport=rm) == GpuNode(0, None)
    with opened(rm) as client:
        assert client.gpu_id != 0


def test_a_gpu_that_is_not_attached_is_refused() -> None:
    rm = SimulatedRm(Card(faults={Fault.NOT_ROOT}))
    with pytest.raises(RmError, match=r"0000:2a:00\.0 is not among the attached GPUs: 0000:1b:00"):
        RmClient(GpuNode(0, "0000:2a:00.0"), rm)
    assert not rm.files
