"""Write random tokens in Megatron's indexed format: PREFIX.bin holds them, PREFIX.idx says where documents are.

For benchmarks: the speed of training does not depend on what the tokens say. Half of them follow from
the token before, so that a loss that does not fall still means something is wrong. Standard library only.

PREFIX.idx, little endian: nine bytes "MMIDIDX" and two zeros; version 1 (8 bytes); token type (1 byte: 4 is
int32, 8 is uint16); number of sequences and of document bounds (8 bytes each); then lengths (4 bytes each),
offsets in bytes (8 each) and document bounds (8 each). One sequence is one document.
"""

import argparse
import random
import struct
from pathlib import Path

MAGIC = b"MMIDIDX\x00\x00"
UINT16, INT32 = 8, 4
# The trainer takes uint16 for vocabularies below this size.
SMALL_VOCAB = 65500


def documents(count, vocab, longest, seed):
    """Token lists: each token is random or follows from the one before; the last one ends the text."""
    choose = random.Random(seed)
    end = vocab - 1
    for _ in range(count):
        length = choose.randint(max(1, longest // 4), longest)
        token = choose.randrange(end)
        tokens = [token]
        for _ in range(length - 1):
            token = (token * 31 + 7) % end if choose.random() < 0.5 else choose.randrange(end)
            tokens.append(token)
        yield [*tokens, end]


def write(prefix, vocab, count, longest, seed):
    """Write both files; the index last and renamed into place, so that it never points at half of the data."""
    Path(prefix).absolute().parent.mkdir(parents=True, exist_ok=True)
    small = vocab < SMALL_VOCAB
    lengths = []
    with Path(prefix + ".bin.part").open("wb") as data:
        for tokens in documents(count, vocab, longest, seed):
            lengths.append(len(tokens))
            data.write(struct.pack(f"<{len(tokens)}{'H' if small else 'i'}", *tokens))
    offsets, position = [], 0
    for length in lengths:
        offsets.append(position)
        position += length * (2 if small else 4)
    n = len(lengths)
    with Path(prefix + ".idx.part").open("wb") as index:
        index.write(MAGIC + struct.pack("<QB", 1, UINT16 if small else INT32))
        index.write(struct.pack("<QQ", n, n + 1))
        index.write(struct.pack(f"<{n}i{n}q{n + 1}q", *lengths, *offsets, *range(n + 1)))
    Path(prefix + ".bin.part").replace(prefix + ".bin")
    Path(prefix + ".idx.part").replace(prefix + ".idx")
    return sum(lengths)


def main():
    parser = argparse.ArgumentParser(description="Write random tokens in Megatron's indexed format.")
    parser.add_argument("--prefix", required=True, help="path of the files without .bin and .idx")
    parser.add_argument(
        "--vocab", type=int, required=True, help="size of the vocabulary, end-of-text included"
    )
    parser.add_argument("--tokens", type=int, default=1000000, help="about how many tokens")
    parser.add_argument("--longest", type=int, default=2048, help="longest document")
    parser.add_argument("--seed", type=int, default=1234)
    args = parser.parse_args()
    if args.vocab < 2 or args.longest < 1:
        parser.error("--vocab must be at least 2 and --longest at least 1")
    mean = max(1, (max(1, args.longest // 4) + args.longest) // 2)
    count = max(100, args.tokens // mean)
    tokens = write(args.prefix, args.vocab, count, args.longest, args.seed)
    print(f"wrote {tokens} tokens in {count} documents to {args.prefix}.bin and .idx")


if __name__ == "__main__":
    main()
