"""Records of launches on a GPU, by family. An operand's type says what its cells are."""
