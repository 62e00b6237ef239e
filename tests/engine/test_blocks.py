"""Memory that is used again once an array is freed, and never before."""

import os
import signal
import threading

import numpy as np
import pytest

import bslite
from bslite.engines.cpu.blocks import LEAST, Blocks
from bslite.engines.cpu.engine import engine_for
from bslite.spec import Array
from bslite.spec.build import GraphBuilder

SHAPE = (4, LEAST)


def place(array: Array) -> int:
    return int(array.ctypes.data)


def test_freed_memory_is_used_again_for_the_same_size() -> None:
    blocks = Blocks()
    first = blocks.array(SHAPE)
    at = place(first)
    assert (first.shape, first.dtype, first.flags.c_contiguous, first.flags.writeable) == (
        SHAPE, np.float32, True, True,
    )  # fmt: skip
    del first
    again = blocks.array((LEAST, 4), np.int32)
    assert (place(again), again.dtype) == (at, np.int32)
    assert (blocks.used, blocks.idle) == (16 * LEAST, 0)


def test_memory_that_a_view_holds_is_not() -> None:
    blocks = Blocks()
    held = blocks.array(SHAPE)
    held[...] = 3
    at = place(held)
    views = [held[1:].T, held.reshape(-1)[5:9], memoryview(held)]
    del held
    while views:
        other = blocks.array(SHAPE)
        assert place(other) != at
        other[...] = 7
        assert (np.asarray(views.pop()) == 3).all()
        del other
    assert blocks.used == 0
    assert at in [place(array) for array in [blocks.array(SHAPE), blocks.array(SHAPE)]]


def test_memory_that_a_tensor_or_a_graph_holds_is_not() -> None:
    torch = pytest.importorskip("torch")
    blocks = Blocks()

    def tensor() -> torch.Tensor:
        return torch.from_numpy(blocks.array(SHAPE))

    held = tensor().fill_(3)
    view, at = held[1:], held.data_ptr()
    del held
    assert tensor().data_ptr() != at
    weight = torch.ones(4, 1, requires_grad=True)
    saved = tensor().fill_(2)
    made, at = (weight * saved).sum(), saved.data_ptr()
    del saved
    tensor().fill_(7)
    made.backward()
    assert torch.equal(weight.grad, torch.full((4, 1), 2.0 * LEAST))
    assert tensor().data_ptr() == at  # now it is free
    assert torch.equal(view, torch.full_like(view, 3))


def test_all_of_it_is_never_more_than_was_in_use_at_once() -> None:
    blocks = Blocks()
    for size in range(1, 9):
        large, small = blocks.array((size, LEAST)), blocks.array((LEAST + size,))
        assert blocks.used + blocks.idle <= blocks.most
        del large, small
    assert blocks.used == 0
    assert blocks.idle <= blocks.most == 4 * (8 * LEAST + LEAST + 8)


def test_small_arrays_are_numpys() -> None:
    blocks = Blocks()
    assert blocks.array(()).shape == ()
    assert blocks.array((LEAST - 1,)).flags.owndata
    assert blocks.used == 0


def test_threads_share_it() -> None:
    blocks, wrong = Blocks(), []

    def work(number: int) -> None:
        for i in range(200):
            array = blocks.array((LEAST + i % 3,))
            array[...] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert blocks.used == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    blocks, held, done = Blocks(), threading.Event(), threading.Event()

    def hold() -> None:
        with blocks._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(10)  # a child that waits is ended
        blocks.array(SHAPE)
        os._exit(0)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_results_are_written_to_memory_that_is_there() -> None:
    b = GraphBuilder("large")
    spec = b.build(b.add("relu", "relu", b.input("x", ("N", LEAST))))
    x = np.linspace(-1, 1, 2 * LEAST, dtype=np.float32).reshape(2, LEAST)
    first = bslite.run(spec, x)
    at, part = place(first), first[1]
    del first
    second = bslite.run(spec, -x)
    assert place(second) != at
    np.testing.assert_array_equal(part, np.maximum(x[1], 0))
    del part
    assert place(bslite.run(spec, x)) == at
    assert engine_for(spec).results.most == 2 * second.nbytes
    held = bslite.api.memory(spec)["values"]
    del second
    assert bslite.api.memory(spec)["values"] == held + 8 * LEAST
    bslite.api.release(spec)
    assert bslite.api.memory(spec)["values"] == 0
