"""What the site adds to Sphinx; one file per thing."""
