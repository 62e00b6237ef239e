"""Models over HTTP, by the Open Inference Protocol (V2): what ``bslite serve`` runs."""
