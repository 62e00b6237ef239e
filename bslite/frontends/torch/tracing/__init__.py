"""What stands around `torch.export` while it traces a module, and whether the trace is of the module."""
