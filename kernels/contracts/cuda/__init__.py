"""Records of launches on a GPU, by family. An operand's type gives the type of its cells."""
