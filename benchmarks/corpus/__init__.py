"""Trained ONNX files that people ship, by bslite and by onnxruntime: loaded, judged, timed."""
