"""Models of transformers and timm through `bslite.optimize`, beside torch eager."""
