"""Sums and broadcasts over all ranks with NCCL, and says how fast. One process a GPU, started by srun.

allreduce.py [MIB]    MIB: of one message; large broadcasts are what some network plugins hang in
"""

import datetime
import os
import sys
import time

ROUNDS = 10


def rank_variables():
    """The words that torch expects, from Slurm's; a process that sees one GPU takes that."""
    for name, slurm in (
        ("RANK", "SLURM_PROCID"),
        ("WORLD_SIZE", "SLURM_NTASKS"),
        ("LOCAL_RANK", "SLURM_LOCALID"),
    ):
        os.environ.setdefault(name, os.environ.get(slurm, "0" if name != "WORLD_SIZE" else "1"))


def measure(what, run, synchronize):
    """Seconds of one round, after one that does not count."""
    run()
    synchronize()
    begun = time.perf_counter()
    for _ in range(ROUNDS):
        run()
    synchronize()
    seconds = (time.perf_counter() - begun) / ROUNDS
    if os.environ["RANK"] == "0":
        print(f"{what}: {seconds * 1e3:.2f} ms a round", flush=True)
    return seconds


def main():
    """Every rank sums and receives one message."""
    import torch
    import torch.distributed as dist

    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    rank_variables()
    local = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=120))
    world, rank = dist.get_world_size(), dist.get_rank()
    data = torch.full((mib * 2**18,), float(rank + 1), device="cuda")
    seconds = measure(
        f"all-reduce of {mib} MiB",
        lambda: dist.all_reduce(data, op=dist.ReduceOp.MAX),
        torch.cuda.synchronize,
    )
    if float(data[0]) != world or float(data[-1]) != world:
        sys.exit(f"rank {rank}: the sum is wrong: {float(data[0])} instead of {world}")
    data.fill_(rank)
    measure(f"broadcast of {mib} MiB", lambda: dist.broadcast(data, world - 1), torch.cuda.synchronize)
    if float(data[-1]) != world - 1:
        sys.exit(f"rank {rank}: the broadcast is wrong: {float(data[-1])}")
    if rank == 0:
        # As nccl-tests count it: what the slowest link carries.
        bus = mib * 2**20 * 2 * (world - 1) / world / seconds / 1e9
        print(f"ok: {world} ranks, all-reduce bus bandwidth {bus:.1f} GB/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
