"""Models on many machines, by Ray: a deployment for Ray Serve, a worker for Ray Data's ``map_batches``."""

from bslite.ray.deployment import MOST_BYTES, deployment
from bslite.ray.predictor import Predictor

__all__ = ["MOST_BYTES", "Predictor", "deployment"]
