"""Names under which programs reach onnxruntime's options and errors."""

from bslite.onnxruntime.capi import onnxruntime_inference_collection, onnxruntime_pybind11_state

_pybind_state = onnxruntime_pybind11_state

__all__ = ["_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state"]
