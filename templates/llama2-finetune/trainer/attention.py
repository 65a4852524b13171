"""Two orders of the rows of a query-key-value matrix, and which one a trainer's checkout reads.

The public converter writes them by group: the queries of one key-value head, its key, its value, then the next
group. Megatron-DeepSpeed read them so until its commit 676a482 of 4 December 2024; since then it takes all queries,
then all keys, then all values of a rank. Converted weights that are not put in that order load without a word, and
attention is scrambled.
"""

GROUPS, BLOCKS = "groups", "blocks"


class LayoutError(Exception):
    """A trainer whose order of rows cannot be told; the text is one sentence."""


def order_of(source):
    """The order that an attention's source reads."""
    blocks, groups = "each_hidden_size" in source, "self.split_tensor(" in source
    if blocks == groups:
        raise LayoutError(
            "This checkout's megatron/model/transformer.py cuts queries, keys and values in a way that is not known "
            "here; use Megatron-DeepSpeed 4efb479 (July 2025), or one of January to November 2024."
        )
    return BLOCKS if blocks else GROUPS


def rows_by_block(queries, groups, width):
    """For one rank: row numbers of the by-group matrix in by-block order.

    queries: query heads of the rank. groups: its key-value heads. width: rows of a head.
    """
    each = queries // groups
    heads = [g * (each + 2) + i for g in range(groups) for i in range(each)]
    heads += [g * (each + 2) + each for g in range(groups)]
    heads += [g * (each + 2) + each + 1 for g in range(groups)]
    return [head * width + row for head in heads for row in range(width)]


def inverse(rows):
    """The numbers that undo an order."""
    back = [0] * len(rows)
    for new, old in enumerate(rows):
        back[old] = new
    return back
