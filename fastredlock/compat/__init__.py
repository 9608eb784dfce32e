"""One module per replaced library, named as it: change the import and nothing else."""
