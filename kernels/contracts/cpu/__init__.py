"""Records of CPU steps, by family. Strides are in bytes and sizes in elements unless a record says so."""
