"""Records of CPU steps, by family. Strides are in bytes, sizes in elements, unless a record says otherwise."""
