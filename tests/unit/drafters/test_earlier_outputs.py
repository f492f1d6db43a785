"""Earlier outputs: bounded, the oldest forgotten first, apart by namespace."""

import random
from threading import Thread

from ov_specdec.drafters.suffix_index import EarlierOutputs


def known(outputs, namespace, text):
    """Whether a text is in the indexes of a namespace, once all outputs are."""
    outputs.take_in()
    matches = [index.find(text[:-1]) for index in outputs.indexes(namespace)]
    return any(m is not None and m.continuation(1) == text[-1:] for m in matches)


def test_an_output_without_tokens_is_none():
    outputs = EarlierOutputs()
    outputs.remember(None, [1, 2, 3], num_prompt=3)
    outputs.take_in()
    assert outputs.indexes(None) == []


def test_namespaces_do_not_see_each_other():
    outputs = EarlierOutputs()
    outputs.remember("a", [1, 2, 3], num_prompt=0)
    outputs.remember("b", [4, 5, 6], num_prompt=0)
    assert known(outputs, "a", [1, 2, 3])
    assert known(outputs, "b", [4, 5, 6])
    assert not known(outputs, "a", [4, 5, 6])
    assert not known(outputs, None, [1, 2, 3])


def test_the_oldest_go_first_and_the_newest_stay():
    outputs = EarlierOutputs(capacity=100)
    for start in range(0, 1000, 10):
        outputs.remember(None, range(start, start + 10), num_prompt=0)
        assert known(outputs, None, [start, start + 1])
        assert outputs.num_tokens <= 100
    assert not known(outputs, None, [0, 1])


def test_what_is_too_much_goes_from_the_namespace_idle_longest():
    outputs = EarlierOutputs(capacity=100)
    for name, start in (("a", 0), ("b", 100), ("a", 200)):
        outputs.remember(name, range(start, start + 30), num_prompt=0)
        outputs.take_in()
    outputs.remember("c", range(300, 330), num_prompt=0)
    outputs.take_in()
    assert outputs.indexes("b") == []
    assert known(outputs, "a", [0, 1])
    assert known(outputs, "c", [300, 301])


def test_outputs_that_nobody_asks_for_are_forgotten_too():
    outputs = EarlierOutputs(capacity=100)
    for start in range(0, 1000, 10):
        outputs.remember(start, range(start, start + 10), num_prompt=0)
    assert outputs.num_waiting == 100
    assert known(outputs, 990, [990, 991])
    assert not known(outputs, 0, [0, 1])
    assert outputs.num_waiting == 0


def test_outputs_may_come_from_many_threads():
    outputs, generator = EarlierOutputs(), random.Random(0)
    texts = [[generator.randrange(1000) for _ in range(20)] for _ in range(64)]
    threads = [Thread(target=outputs.remember, args=("a", text, 0)) for text in texts]
    for thread in threads:
        thread.start()
        outputs.take_in()
    for thread in threads:
        thread.join()
    assert all(known(outputs, "a", text) for text in texts)
