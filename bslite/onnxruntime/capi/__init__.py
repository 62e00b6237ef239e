"""Names under which programs reach onnxruntime's errors."""
