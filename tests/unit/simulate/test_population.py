"""Keys of a population: draws of a recorded pool, at the edges of its weights."""

import numpy as np
import pytest

from logstore.simulate.population import _Pool


@pytest.mark.parametrize(
    ("discount", "uniform", "keys"),
    (
        # Key 3 was written twice, 5 once and 9 three times: a sixth for each write.
        (0.0, (0, 1.99 / 6, 2.01 / 6, 2.99 / 6, 3.01 / 6, 1 - 1e-9), (3, 3, 5, 5, 9, 9)),
        # With half a write less for each key, the weights are 1.5, 0.5 and 2.5 of 4.5.
        (0.5, (0, 1.49 / 4.5, 1.51 / 4.5, 1.99 / 4.5, 2.01 / 4.5, 1 - 1e-9), (3, 3, 5, 5, 9, 9)),
    ),
)
def test_keys_are_drawn_by_their_writes_less_a_discount(discount, uniform, keys):
    pool = _Pool(np.array([9, 3, 9, 5, 3, 9]), discount)
    numbers = np.full(8, -7)
    rows = np.array([False, *[True] * 6, False])
    pool.draw(numbers, rows, np.array([0.5, *uniform, 0.5]))
    assert numbers.tolist() == [-7, *keys, -7]


def test_the_bounds_of_weights_belong_to_the_next_key():
    pool = _Pool(np.array([1, 1, 2, 2]))
    numbers = np.zeros(2, np.int64)
    pool.draw(numbers, np.array([True, True]), np.array([0.5, 1.0]))
    assert numbers.tolist() == [2, 2]


def test_an_empty_pool_draws_nothing():
    numbers = np.full(2, -7)
    _Pool(np.empty(0, np.int64)).draw(numbers, np.array([True, True]), np.array([0.1, 0.9]))
    assert numbers.tolist() == [-7, -7]
