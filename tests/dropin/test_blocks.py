"""Memory that is used again once torch has freed it, and never before."""

import threading

import torch

from bslite.dropin.training.blocks import LEAST, Blocks

SHAPE = (4, LEAST)


def test_freed_memory_is_used_again_for_the_same_size() -> None:
    blocks = Blocks()
    first = blocks.tensor(SHAPE)
    place = first.data_ptr()
    assert (first.shape, first.dtype, first.is_contiguous()) == (SHAPE, torch.float32, True)
    del first
    again = blocks.tensor((LEAST, 4))
    assert again.data_ptr() == place
    assert (blocks.used, blocks.idle) == (16 * LEAST, 0)


def test_memory_that_a_view_or_a_graph_holds_is_not() -> None:
    blocks = Blocks()
    held = blocks.tensor(SHAPE).fill_(3)
    view, place = held[1:], held.data_ptr()
    del held
    assert blocks.tensor(SHAPE).data_ptr() != place
    weight = torch.ones(4, 1, requires_grad=True)
    saved = blocks.tensor(SHAPE).fill_(2)
    made, place = (weight * saved).sum(), saved.data_ptr()
    del saved
    blocks.tensor(SHAPE).fill_(7)
    made.backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((4, 1), 2.0 * LEAST))
    assert blocks.tensor(SHAPE).data_ptr() == place  # now it is free
    assert torch.equal(view, torch.full_like(view, 3))


def test_all_of_it_is_never_more_than_was_in_use_at_once() -> None:
    blocks = Blocks()
    for size in range(1, 9):
        large, small = blocks.tensor((size, LEAST)), blocks.tensor((LEAST + size,))
        assert blocks.used + blocks.idle <= blocks.most
        del large, small
    assert blocks.used == 0
    assert blocks.idle <= blocks.most == 4 * (8 * LEAST + LEAST + 8)


def test_small_tensors_are_torchs() -> None:
    blocks = Blocks()
    assert blocks.tensor(()).shape == ()
    assert blocks.tensor((LEAST - 1,)).shape == (LEAST - 1,)
    assert blocks.used == 0


def test_threads_share_it() -> None:
    blocks, wrong = Blocks(), []

    def work(number: int) -> None:
        for i in range(200):
            tensor = blocks.tensor((LEAST + i % 3,)).fill_(number)
            if not bool((tensor == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert blocks.used == 0
