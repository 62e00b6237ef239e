"""A Ray cluster for all tests of a process."""

from collections.abc import Iterator
from typing import Any

import pytest
from support import ray_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """See `support.ray_cluster.running`."""
    with ray_cluster.running() as made:
        yield made
