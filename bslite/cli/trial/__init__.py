"""What ``bslite try`` finds out about a model, and the screen that shows it."""
