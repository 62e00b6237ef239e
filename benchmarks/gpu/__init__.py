"""bslite on a GPU against torch on the same GPU: networks, stacks, recurrent layers. See __main__.py."""
