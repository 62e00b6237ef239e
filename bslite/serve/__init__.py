"""Models over HTTP and gRPC, by the Open Inference Protocol (V2): what ``bslite serve`` runs."""
