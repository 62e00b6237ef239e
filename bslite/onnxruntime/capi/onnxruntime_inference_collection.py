"""Where onnxruntime keeps its sessions and values: programs import them from there as well."""

from bslite.onnxruntime.binding import IOBinding, OrtValue
from bslite.onnxruntime.devices import OrtDevice
from bslite.onnxruntime.session import InferenceSession

Session = InferenceSession

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session"]
