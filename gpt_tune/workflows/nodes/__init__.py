"""The nodes of one job: what each last said, how far behind it is, and (on request) how its hardware does."""
