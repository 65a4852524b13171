"""Charts of runs as files: SVG and PNG, without a plotting library."""
