"""For each rule about shell: files that have the fault, and near ones that have not."""

# ruff: noqa: E501  scripts stand here as they are
from __future__ import annotations

from tests.lint.support import Files, batch, megatron, trainer

EFA = "export FI_PROVIDER=efa\nexport NCCL_DEBUG=INFO\n"
ACS = "# image: egslingjun/training-nv-pytorch:25.08\nexport NCCL_DEBUG=INFO\n"
RUN = "srun python3 train.py\n"


def job(body: str, *directives: str, name: str = "job.sbatch", head: str = "set -euo pipefail") -> Files:
    return {name: batch(body, *directives, head=head)}


def readme(text: str, body: str) -> Files:
    return {"README.md": text, "job.sbatch": batch(body)}


TABLE = "# Case\n\nEnvironment variables:\n\n| Variable | Default |\n| --- | --- |\n"
SIZE = "--num-layers {} --hidden-size {} --num-attention-heads {} --vocab-size 50257 --micro-batch-size 1"
FORCED = """
: "${{ZERO_STAGE:=1}}" "${{PP:=2}}"
if [ "$ZERO_STAGE" -ge 2 ]; then
  {branch}
  ARGS+=(--pipeline-model-parallel-size 1 --no-pipeline-parallel)
else
  ARGS+=(--pipeline-model-parallel-size "$PP")
fi
echo "PP=$PP ZeRO=$ZERO_STAGE"
srun python3 pretrain_gpt.py --deepspeed --zero-stage "$ZERO_STAGE" "${{ARGS[@]}}"
"""
TARGET = batch(
    ': "${TP:=8}" "${PP:=2}" "${ZERO_STAGE:=1}" "${GLOBAL_BATCH_SIZE:=64}" "${MICRO_BATCH_SIZE:=1}"\n'
    "(( GLOBAL_BATCH_SIZE % MICRO_BATCH_SIZE == 0 ))\n"
    "if ((ZERO_STAGE >= 2)); then PP=1; ARGS=(--no-pipeline-parallel); else ARGS=(); fi\n"
    'srun python3 pretrain_gpt.py --deepspeed --tensor-model-parallel-size "$TP" --zero-stage "$ZERO_STAGE" '
    '--pipeline-model-parallel-size "$PP" --global-batch-size "$GLOBAL_BATCH_SIZE" --save x "${ARGS[@]}"'
)


def sweep(rows: str, record: str = "", tail: str = "--job-name=s_$name") -> Files:
    text = (
        "#!/bin/bash\nset -euo pipefail\nwhile read -r name pp zero mbs gbs; do\n"
        f"  sbatch {tail} "
        "--export=ALL,PP=$pp,ZERO_STAGE=$zero,MICRO_BATCH_SIZE=$mbs,GLOBAL_BATCH_SIZE=$gbs job.sbatch\n"
        f"{record}done <<EOF\n{rows}EOF\n"
    )
    return {"job.sbatch": TARGET, "sweep.sh": text}


RECORD = '  echo "$name,$pp,$zero" >> "results.csv"\n'
ROWS = "base 2 0 1 64\nmore 4 0 1 64\nzero1 2 1 1 64\nfull 8 0 1 64\n"

BAD: dict[str, list[Files]] = {
    "unknown-variable": [
        job(f"export NCCL_BUFFERSIZE=8388608\nexport NCCL_DEBUG=INFO\n{RUN}"),
        job(f"export NCCL_DEBUG_SUBSYTEM=INIT NCCL_DEBUG=INFO\n{RUN}"),
        job(f"export FI_EFA_USE_HUGEPAGE=0\nexport NCCL_DEBUG=INFO\n{RUN}"),
        job(f"export TORCH_NCCL_ASYNC_ERROR_HANDLNG=1\n{RUN}"),
        job("srun --export=ALL,NCCL_MIN_CHANNELS=8,NCCL_DEBUG=INFO python3 train.py"),
        {"Dockerfile": "FROM scratch\nENV NCCL_IB_TIMOUT=22\n"},
    ],
    "misspelt-variable": [
        job(f"export CUDA_DEVICE_MAX_CONNECTION5=1\n{RUN}"),
        job(f"export PYTORCH_CUDA_ALOC_CONF=expandable_segments:True\n{RUN}"),
    ],
    "old-variable": [
        job(f"export NCCL_ASYNC_ERROR_HANDLING=1\nexport NCCL_DEBUG=INFO\n{RUN}"),
        job(f"export TRANSFORMERS_CACHE=/shared/cache\n{RUN}"),
        job(f"export NCCL_AVOID_RECORD_STREAMS=1 NCCL_DEBUG=INFO\n{RUN}"),
    ],
    "not-exported": [
        job(f"NCCL_DEBUG=INFO\n{RUN}"),
        job(f"CUDA_DEVICE_MAX_CONNECTIONS=1\n{RUN}"),
    ],
    "expandable-segments-case": [
        job(f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true\n{RUN}"),
        job("PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:64,expandable_segments:TRUE' srun python3 train.py"),
        {"Dockerfile": "FROM scratch\nENV PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true\n"},
    ],
    "allocator-form": [job(f"export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb=128\n{RUN}")],
    "nccl-tree-on-efa": [
        job(f"{EFA}export NCCL_ALGO=Tree\n{RUN}"),
        job(f'{EFA}srun bash -c "export NCCL_ALGO=tree && python3 train.py"'),
    ],
    "nccl-proto-on-efa": [job(f"{EFA}export NCCL_PROTO=simple\n{RUN}")],
    "efa-obsolete": [job(f"{EFA}export FI_EFA_FORK_SAFE=1\n{RUN}"), job(f"{EFA}export RDMAV_FORK_SAFE=1\n{RUN}")],
    "nccl-hand-tuned": [job(f"{EFA}export NCCL_P2P_NET_CHUNKSIZE=524288\n{RUN}")],
    "nccl-size": [job(f"export NCCL_DEBUG=INFO NCCL_BUFFSIZE=8000000\n{RUN}")],
    "nccl-one-interface": [job(f"{EFA}export NCCL_SOCKET_IFNAME=eth0\n{RUN}")],
    "nccl-debug-level": [job(f"export NCCL_DEBUG=VERBOSE\n{RUN}")],
    "nccl-debug-unset": [job(f"export FI_PROVIDER=efa\n{RUN}")],
    "acs-interface": [job(f"{ACS}export NCCL_SOCKET_IFNAME=bond0\n{RUN}")],
    "override-lost": [
        readme(TABLE + "| `BATCH` | 8 |\n", f"export BATCH=8\n{RUN}"),
        readme("```bash\nBATCH=16 sbatch job.sbatch\n```\n", f"BATCH=8\n{RUN}"),
        readme("```bash\nsbatch --export=ALL,BATCH=16 job.sbatch\n```\n", f"export BATCH=8\n{RUN}"),
        {"job.sbatch": batch(f"export NCCL_DEBUG=INFO NCCL_TUNER_PLUGIN=x.so\n{RUN}"),
         "sweep.sh": '#!/bin/bash\nrun() {\n  sbatch --export="ALL,$1" job.sbatch\n}\nrun NCCL_TUNER_PLUGIN=\n'},
        job(f"# usage: STEPS=100 sbatch job.sbatch\nSTEPS=50\n{RUN}"),
    ],
    "default-drift": [readme(TABLE + "| `BATCH` | 16 |\n", f'export BATCH="${{BATCH:-8}}"\n{RUN}')],
    "export-twice": [
        {"run.sh": "#!/bin/bash\nsbatch --export=ALL,A=1 --export=ALL,B=2 job.sbatch\n"},
        {"run.sh": '#!/bin/bash\ncmd="sbatch --export=ALL,A=1"\nif [ -n "$1" ]; then cmd+=" --export=ALL,B=2"; fi\neval "$cmd x"\n'},
    ],
    "export-comma": [
        {"run.sh": "#!/bin/bash\nsbatch --export=ALL,NCCL_SOCKET_IFNAME=^docker,lo job.sbatch\n"},
        job(RUN, "--export=ALL,NCCL_SOCKET_IFNAME=^docker,lo,veth"),
    ],
    "layout-illegal": [
        {"job.sbatch": trainer("--num-attention-heads 20", "--tensor-model-parallel-size 8")},
        {"job.sbatch": trainer("--zero-stage 2", "--pipeline-model-parallel-size 4", "--num-layers 24")},
        {"job.sbatch": trainer("--zero-stage 3", "--pipeline-model-parallel-size 1")},
        {"job.sbatch": batch(
            "srun python3 pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 3 "
            "--num-layers 32 --save x"
        )},
        {"job.sbatch": batch(
            "srun torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --save x "
            "--micro-batch-size 3 --global-batch-size 64", "--nodes=2"
        )},
        {"job.sbatch": batch(
            "srun torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --save x "
            "--pipeline-model-parallel-size 4 --num-layers 32", "--nodes=2"
        )},
        {"job.sbatch": TARGET, "run.sh": "#!/bin/bash\nTP=8 ZERO_STAGE=2 PP=4 sbatch job.sbatch\n".replace("PP=4 ", "GLOBAL_BATCH_SIZE=7 ")
         + "sbatch --nodes=1 --export=ALL,TP=8 other.sbatch\n",
         "other.sbatch": batch(': "${TP:=4}"\nsrun python3 pretrain_gpt.py --deepspeed --num-attention-heads 20 --save x '
                               '--tensor-model-parallel-size "$TP"')},
    ],
    "effective-stages": [job(FORCED.format(branch=":"))],
    "recorded-stages": [sweep(ROWS + "zero2 2 2 1 64\n", RECORD)],
    "unchecked-layout": [job(
        ': "${TP:=8}" "${GBS:=64}"\nsrun python3 pretrain_gpt.py --tensor-model-parallel-size "$TP" --global-batch-size "$GBS" --save x'
    )],
    "gpu-count": [
        job("srun torchrun --nproc-per-node 8 train.py", "--gpus-per-node=4"),
        job("srun torchrun --nnodes 2 --nproc-per-node 8 train.py", "--nodes=4"),
    ],
    "launcher-per-task": [job("srun torchrun --nproc-per-node 8 train.py", "--ntasks-per-node=8")],
    "zero-needs-no-pipeline": [job(
        ': "${ZERO:=1}"\nsrun python3 pretrain_gpt.py --deepspeed --tensor-model-parallel-size 2 --zero-stage "$ZERO" --save x'
    )],
    "sp-needs-cdmc": [
        {"job.sbatch": trainer("--tensor-model-parallel-size 8", "--sequence-parallel")},
        job(': "${SP:=0}"\nif [ "$SP" = 1 ]; then X=(--sequence-parallel); fi\n'
            'srun python3 pretrain_gpt.py --tensor-model-parallel-size 2 --save x "${X[@]}"'),
    ],
    "checkpointing-off": [{"job.sbatch": trainer("--deepspeed-activation-checkpointing")}],
    "decay-fixed": [
        {"job.sbatch": trainer('--train-iters "$N"', "--lr-decay-iters 50", before=': "${N:=50}"')},
        {"job.sbatch": trainer('--train-iters "$N"', "--lr-decay-iters 320000", before='N=${N:-1000}')},
    ],
    "no-save": [job("srun python3 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --lr 1e-4 --train-iters 9000")],
    "save-interval": [job("srun python3 pretrain_gpt.py --deepspeed --tensor-model-parallel-size 2 --train-iters 900 --save out")],
    "argument-conflict": [
        {"job.sbatch": megatron("--seq-length 4096", "--max-position-embeddings 2048")},
        {"job.sbatch": megatron("--lr 1e-5", "--min-lr 1e-4")},
        {"job.sbatch": megatron("--train-iters 10", "--train-samples 100")},
    ],
    "config-disagrees": [job(
        'cat > "ds_$SLURM_JOB_ID.json" <<EOF\n{"train_batch_size": 32, "zero_optimization": {"stage": 1}}\nEOF\n'
        "srun python3 pretrain_gpt.py --deepspeed --tensor-model-parallel-size 1 --train-iters 9 "
        "--global-batch-size 64 --save x "
        '--save-interval 3 --deepspeed_config "ds_$SLURM_JOB_ID.json"'
    )],
    "size-label": [
        {"train_30b.sbatch": megatron(SIZE.format(48, 10240, 80))},
        job("# GPT with 7B parameters\nsrun python3 pretrain_gpt.py --tensor-model-parallel-size 1 --save x " + SIZE.format(32, 6144, 48)),
        {"job.sbatch": megatron(SIZE.format(24, 2048, 16)).replace("--job-name=job", "--job-name=gpt-2.7b")},
        {"README.md": "A 103B model (80 layers, hidden 12288, 96 heads).\n"},
        {"parse.py": 'def tflops(t, hidden_size=12288, num_layers=80):\n    return t\nMODEL = "gpt-103b"\n'},
    ],
    "sbatch-too-late": [{"job.sbatch": "#!/bin/bash\n#SBATCH --nodes=1\nset -e\n#SBATCH --time=10\nsrun hostname\n"}],
    "sbatch-unknown-option": [job(RUN, "--node=4"), job(RUN, "--cpu-per-task=8")],
    "sbatch-variable": [job(RUN, "--output=$HOME/%j.out"), job(RUN, "--nodes=${NODES}")],
    "sbatch-duplicate": [job(RUN, "--nodes=2", "-N 4")],
    "log-folder": [
        {"job.sbatch": batch(f"mkdir -p logs\n{RUN}", "--error=logs/%j.err")},
        {"job.sbatch": batch(RUN, "--error=logs/%j.err")},
        {"job.sbatch": batch(RUN, "--error=logs/%j.err"), "Makefile": "run:\n\tsbatch job.sbatch\n",
         "other.sh": "#!/bin/bash\nmkdir -p logs\n"},
    ],
    "log-truncated": [job(RUN, "--requeue"), job("srun --auto-resume=1 python3 train.py")],
    "auto-resume-on-sbatch": [
        job(RUN, "--auto-resume=1", "--open-mode=append"),
        {"run.sh": "#!/bin/bash\nsbatch --auto-resume=1 job.sbatch\n"},
    ],
    "auto-resume-with-container": [
        job("srun --auto-resume=1 --container-image x.sqsh python3 train.py", "--open-mode=append"),
        job('if [ -d /opt/sagemaker_cluster ]; then A="--auto-resume=1"; fi\nC=(--container-image "$IMAGE")\n'
            'srun $A "${C[@]}" python3 train.py', "--open-mode=append"),
    ],
    "auto-resume-time": [job("srun --auto-resume=1 python3 train.py", "--open-mode=append", "--time=1:30:00")],
    "example-partition": [readme(
        "```bash\nsbatch --partition=dev job.sbatch\n```\n\n```bash\nsbatch --nodes=4 job.sbatch\n```\n", RUN
    )],
    "precedence-claim": [
        job(f"# No partition here: #SBATCH directives take precedence over the command line.\n{RUN}"),
        {"README.md": "The command line is overridden by the #SBATCH lines of the script.\n"},
        job(f"# The directive in this file would beat\n# the sbatch --partition option.\n{RUN}"),
    ],
    "host-address": [
        job(f"export MASTER_ADDR=$(hostname --ip-address)\n{RUN}"),
        job(f"MASTER_ADDR=`hostname -i`\nexport MASTER_ADDR\n{RUN}"),
        job("srun torchrun --rdzv_endpoint=$(hostname -I):29500 train.py"),
    ],
    "random-port": [
        job(f"export MASTER_PORT=$((RANDOM + 10000))\n{RUN}"),
        job("srun torchrun --master_port $RANDOM train.py"),
        job(f"export MASTER_PORT=$(shuf -i 10000-60000 -n 1)\n{RUN}"),
    ],
    "random-per-node": [job("srun bash -c 'torchrun --rdzv_id=$RANDOM train.py'")],
    "outside-mounts": [
        job("srun --container-image a.sqsh --container-mounts /fsx python3 pretrain_gpt.py --data-path /data/text_document"),
        job('srun --container-image a.sqsh --container-mounts /fsx:/fsx python3 x.py --deepspeed_config "$PWD/ds.json"'),
    ],
    "shared-file": [
        job("cat > ds_config.json <<EOF\n{}\nEOF\nsrun python3 train.py --deepspeed ds_config.json"),
        job('CONF="$SLURM_SUBMIT_DIR/conf/run.yaml"\nsed s/a/b/ base.yaml > "$CONF"\nsrun python3 train.py --config "$CONF"'),
        job('printf "x" | tee hostfile.txt\nsrun python3 train.py --hostfile hostfile.txt'),
    ],
    "unused-file": [job(f'HOSTFILE=/fsx/hosts_$SLURM_JOB_ID\nscontrol show hostnames > "$HOSTFILE"\n{RUN}rm -f "$HOSTFILE"')],
    "no-trap": [
        job(f'T=$(mktemp)\n{RUN}rm -f "$T"'),
        job('F=conf_$SLURM_JOB_ID.json\necho 1 > "$F"\nsrun python3 t.py "$F"\nrm "$F"'),
    ],
    "own-path": [
        job(f'cd "$(dirname "$0")"\n{RUN}'),
        job(f'HERE="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"\ncd "$HERE"\n{RUN}'),
    ],
    "fixed-partition": [job(RUN, "--partition=gpu_p5"), job(RUN, "-p a100")],
    "fixed-account": [job(RUN, "--account=proj@a100")],
    "fixed-nodes": [job(RUN, "--nodelist=node[1-4]")],
    "personal-mail": [job(RUN, "--mail-user=ada@lab.org")],
    "personal-path": [job(f"cd /home/ada/code\n{RUN}"), job(f"export DATA=/fsx/ubuntu/data\n{RUN}")],
    "fixed-bucket": [
        job("aws s3 cp out s3://ada-lab-results/runs\n" + RUN),
        job(f'S3_BUCKET="${{S3_BUCKET:-ada-lab-results}}"\naws s3 ls "$S3_BUCKET"\n{RUN}'),
    ],
    "fixed-aws-account": [job(f"docker pull 345678901234.dkr.ecr.us-east-1.amazonaws.com/img:1\n{RUN}")],
    "secret": [
        job(f"export HF_TOKEN=hf_{'a1B2' * 9}\n{RUN}"),
        {"README.md": f"key: AKIA{'Q' * 16}\n"},
    ],
    "exit-code-lost": [
        job("srun python3 train.py 2>&1 | tee log.txt", head="set -e"),
        job('srun python3 train.py\necho "done"', head=":"),
    ],
    "no-errexit": [job(f"cd work\n{RUN}", head=":"), job(f"source env.sh\n{RUN}", head=":")],
    "unquoted": [job(f'cd $DIR\n{RUN}'), job(f'rm -rf $OUT/*\n{RUN}')],
    "shebang": [
        {"job.sbatch": "\n" + batch(RUN)},
        {"job.sbatch": batch(RUN).replace("#!/bin/bash\n", "")},
        {"job.sbatch": "# licence\n" + batch(RUN)},
    ],
    "syntax": [
        {"job.sbatch": batch("if true; then\nsrun x")},
        {"run.sh": "#!/bin/bash\nDATA=<path to data>\necho $DATA\n"},
    ],
    "sweep-confounded": [sweep(ROWS + "mbs 2 1 2 128\n")],
    "sweep-unnamed": [sweep(ROWS, tail="--nodes=8")],
}  # fmt: skip

GOOD: dict[str, list[Files]] = {
    "unknown-variable": [
        job(f"export NCCL_BUFFSIZE=8388608 NCCL_DEBUG=INFO\n{RUN}"),
        job('NCCL_TESTS_PATH=/opt/nccl-tests\nexport NCCL_MY_DIR=/x\nsrun "$NCCL_MY_DIR/run" "$NCCL_TESTS_PATH"'),
        job(f"export NCCL_FASTRAK_IFNAME=eth1 NCCL_DEBUG=INFO\n{RUN}"),
        {"Dockerfile": "FROM scratch\nARG NCCL_VERSION=2.29.3\n"},
        job(f"# export NCCL_BUFFERSIZE=1\n{RUN}"),
    ],
    "misspelt-variable": [job(f"export CUDA_DEVICE_MAX_CONNECTIONS=1 MASTER_ADDRESS=x\n{RUN}echo $MASTER_ADDRESS")],
    "old-variable": [
        job(f"export TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n{RUN}"),
        job(f"export TRANSFORMERS_CACHE=/c HF_HOME=/c\n{RUN}"),
    ],
    "not-exported": [
        job(f"export NCCL_DEBUG=INFO\n{RUN}"),
        job(f"NCCL_DEBUG=INFO\nexport NCCL_DEBUG\n{RUN}"),
        job("NCCL_DEBUG=INFO srun python3 train.py"),
        job(f"set -a\nNCCL_DEBUG=INFO\n{RUN}"),
        job("NCCL_DEBUG=INFO\nmpirun -x NCCL_DEBUG python3 train.py"),
    ],
    "expandable-segments-case": [
        job(f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n{RUN}"),
        job(f"export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n{RUN}"),
        job(f"# expandable_segments:true is refused\n{RUN}"),
    ],
    "allocator-form": [job(f"export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n{RUN}")],
    "nccl-tree-on-efa": [
        job(f"export NCCL_DEBUG=INFO NCCL_ALGO=Tree\n{RUN}"),
        job(f"{EFA}export NCCL_ALGO=^Tree\n{RUN}"),
        job(f"{EFA}echo 'never set NCCL_ALGO=Tree'\n{RUN}"),
    ],
    "nccl-proto-on-efa": [job(f"export NCCL_DEBUG=INFO NCCL_PROTO=simple\n{RUN}")],
    "efa-obsolete": [job(f"{EFA}export FI_EFA_USE_HUGE_PAGE=0\n{RUN}")],
    "nccl-hand-tuned": [job(f"export NCCL_DEBUG=INFO NCCL_BUFFSIZE=4194304\n{RUN}")],
    "nccl-size": [job(f"export NCCL_DEBUG=INFO NCCL_BUFFSIZE=8388608\n{RUN}")],
    "nccl-one-interface": [
        job(f"{EFA}export NCCL_SOCKET_IFNAME=^docker,lo,veth\n{RUN}"),
        job(f"{EFA}export NCCL_SOCKET_IFNAME=en\n{RUN}"),
    ],
    "nccl-debug-level": [job(f"export NCCL_DEBUG=info\n{RUN}"), job(f'export NCCL_DEBUG="${{LEVEL:-WARN}}"\n{RUN}')],
    "nccl-debug-unset": [job(f"{EFA}{RUN}"), job(RUN)],
    "acs-interface": [job(f"{ACS}export NCCL_SOCKET_IFNAME=hpn0\n{RUN}")],
    "override-lost": [
        readme(TABLE + "| `BATCH` | 8 |\n", f'export BATCH="${{BATCH:-8}}"\n{RUN}'),
        readme(TABLE + "| `BATCH` | 8 |\n", f': "${{BATCH:=8}}"\n{RUN}'),
        readme(TABLE + "| `BATCH` | 8 |\n", f'[ -n "${{BATCH:-}}" ] || BATCH=8\n{RUN}'),
        readme(TABLE + "| `BATCH` | 8 |\n", f'if [ -z "$BATCH" ]; then BATCH=8; fi\n{RUN}'),
        readme("Edit the script:\n\n" + TABLE + "| `BATCH` | 8 |\n", f"export BATCH=8\n{RUN}"),
        readme("```bash\nsbatch --export=ALL,BATCH=8 job.sbatch\n```\n", f"export BATCH=8\n{RUN}"),
        readme("```bash\nBATCH=16 sbatch other.sbatch\n```\n", f"BATCH=8\n{RUN}"),
        readme("```bash\nBATCH=16 torchrun x.py\nsbatch job.sbatch\n```\n", f"BATCH=8\n{RUN}"),
        job(f"# usage: sbatch job.sbatch\nSTEPS=50\n{RUN}"),
        readme("```bash\nN=4 sbatch job.sbatch\n```\n", 'M="$N"\nN=8\nsrun python3 train.py "$M" "$N"'),
    ],
    "default-drift": [
        readme(TABLE + "| `BATCH` | 8 |\n| `LR` | 1.0e-4 |\n", f'B="${{BATCH:-8}}"\n: "${{LR:=0.0001}}"\n{RUN}'),
        readme(TABLE + "| `IMAGE` | (required) |\n", f': "${{IMAGE:=x}}"\n{RUN}'),
    ],
    "export-twice": [
        {"run.sh": "#!/bin/bash\nsbatch --export=ALL,A=1,B=2 job.sbatch\n"},
        {"run.sh": '#!/bin/bash\ncmd="sbatch"\nif [ -n "$1" ]; then cmd+=" --export=ALL,B=2"; else cmd+=" --export=ALL"; fi\neval "$cmd x"\n'},
    ],
    "export-comma": [
        {"run.sh": "#!/bin/bash\nsbatch --export=ALL,A=1,HOME job.sbatch\n"},
        {"run.sh": '#!/bin/bash\nsbatch --export=ALL,A=1,"$MORE" job.sbatch\n'},
    ],
    "layout-illegal": [
        {"job.sbatch": trainer("--num-attention-heads 32", "--tensor-model-parallel-size 8")},
        {"job.sbatch": megatron("--num-attention-heads 16 --attention-head-type multiquery").replace("size 1", "size 4")},
        {"job.sbatch": trainer("--zero-stage 3", "--pipeline-model-parallel-size 1", "--no-pipeline-parallel")},
        {"job.sbatch": trainer("--zero-stage 1", "--pipeline-model-parallel-size 5", "--num-layers 24")},
        {"job.sbatch": batch(
            "srun python3 pretrain_gpt.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size "
            "12 --num-layers 70 "
            "--pp-partition-method 'type:transformer|embedding' --save x"
        )},
        {"job.sbatch": TARGET},
    ],
    "effective-stages": [job(FORCED.format(branch="PP=1"))],
    "recorded-stages": [sweep(ROWS, RECORD), sweep(ROWS + "zero2 1 2 1 64\n", RECORD)],
    "unchecked-layout": [
        {"job.sbatch": TARGET},
        job("srun python3 pretrain_gpt.py --tensor-model-parallel-size 8 --global-batch-size 64 --save x"),
    ],
    "gpu-count": [
        job("srun torchrun --nproc-per-node 8 train.py", "--gpus-per-node=8"),
        job('srun torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node 4 train.py', "--nodes=4",
        "--gres=gpu:a100:4"),
    ],
    "launcher-per-task": [
        job("srun torchrun --nproc-per-node 8 train.py", "--ntasks-per-node=1"),
        job("srun --ntasks-per-node=1 torchrun --nproc-per-node 8 train.py", "--ntasks-per-node=8"),
        job("srun python3 train.py", "--ntasks-per-node=8"),
    ],
    "zero-needs-no-pipeline": [{"job.sbatch": TARGET}],
    "sp-needs-cdmc": [
        {"job.sbatch": trainer("--tensor-model-parallel-size 8", "--sequence-parallel",
        before="export CUDA_DEVICE_MAX_CONNECTIONS=1")},
        {"job.sbatch": trainer("--tensor-model-parallel-size 1", "--sequence-parallel")},
        {"job.sbatch": trainer("--tensor-model-parallel-size 8")},
        {"args.sh": "ARGS=(--tensor-model-parallel-size 8 --sequence-parallel)\n"},
    ],
    "checkpointing-off": [
        {"job.sbatch": trainer("--deepspeed-activation-checkpointing", "--checkpoint-activations")},
        {"job.sbatch": trainer("--deepspeed-activation-checkpointing", "--recompute-granularity full")},
    ],
    "decay-fixed": [
        {"job.sbatch": trainer('--train-iters "$N"', '--lr-decay-iters "$N"', before=': "${N:=50}"')},
        {"job.sbatch": trainer("--train-iters 500000", "--lr-decay-iters 320000")},
        {"job.sbatch": trainer('--train-iters "$N"', '--lr-decay-iters "$D"', before=': "${N:=50}" "${D:=40}"')},
    ],
    "no-save": [
        job("srun python3 pretrain_gpt.py --tensor-model-parallel-size 2 --lr 1e-4 --micro-batch-size 1 --train-iters 90 --save x"),
        job("srun python3 tools/run_text_generation.py --tensor-model-parallel-size 2 --micro-batch-size 1"),
    ],
    "save-interval": [{"job.sbatch": trainer("--train-iters 10", "--tensor-model-parallel-size 1")}],
    "argument-conflict": [{"job.sbatch": megatron("--seq-length 2048", "--max-position-embeddings 2048",
    "--lr 1e-4", "--min-lr 1e-5")}],
    "config-disagrees": [job(
        'GBS=64\ncat > "ds_$SLURM_JOB_ID.json" <<EOF\n{"train_batch_size": $GBS}\nEOF\n'
        "srun python3 pretrain_gpt.py --deepspeed --tensor-model-parallel-size 1 --train-iters 9 "
        "--global-batch-size $GBS --save x "
        '--save-interval 3 --deepspeed_config "ds_$SLURM_JOB_ID.json"'
    )],
    "size-label": [
        {"train_1.3b.sbatch": megatron(SIZE.format(24, 2048, 16))},
        {"train_175b.sbatch": megatron(SIZE.format(96, 12288, 96))},
        {"train_gemma_7b.sbatch": megatron("--num-layers 28 --hidden-size 3072 --num-attention-heads 16 --ffn-hidden-size 24576 --swiglu")},
        {"job.sbatch": megatron(SIZE.format(24, 2048, 16)).replace("set -e",
        "# 7B tokens of data for the model\nset -e")},
        {"README.md": "A 1.3B model: 24 layers, hidden size 2048, 16 attention heads.\n"},
        {"smoke_test_13b.sbatch": megatron(SIZE.format(12, 512, 8))},
        {"train_1b.sbatch": megatron(SIZE.format(24, 2048, 16))},
    ],
    "sbatch-too-late": [job(RUN, "--nodes=1")],
    "sbatch-unknown-option": [
        job(RUN, "--nodes=1", "--cpus-per-task=8", "--gpus-per-node=8", "--container-image=x", "--exclusive",
        "--wait-all-nodes=1"),
        job(RUN, "--beeond"),
    ],
    "sbatch-variable": [job(RUN, "--output=%x-%j.out"), {"make.sh": "#!/bin/bash\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=$N\nsrun x\nEOF\n"}],
    "sbatch-duplicate": [
        job(RUN, "--nodes=2", "--time=10"),
        job(RUN, "--mail-type=BEGIN", "--mail-type=END"),
        job(RUN, "--nodes=2", "hetjob", "--nodes=1"),
    ],
    "log-folder": [
        job(RUN),
        {"job.sbatch": batch(RUN, "--error=logs/%j.err"), "logs/README.md": "logs\n"},
        {"job.sbatch": batch(RUN, "--error=logs/%j.err"), "README.md": "```bash\nmkdir -p logs\nsbatch job.sbatch\n```\n"},
        {"job.sbatch": batch(RUN, "--error=/scratch/logs/%j.err")},
    ],
    "log-truncated": [job(RUN, "--requeue", "--open-mode=append"), job(RUN)],
    "auto-resume-on-sbatch": [job("srun --auto-resume=1 python3 train.py", "--open-mode=append")],
    "auto-resume-with-container": [
        job("srun --auto-resume=1 python3 train.py", "--open-mode=append"),
        job('if [ -n "$IMAGE" ]; then\n  X=(--container-image "$IMAGE")\nelse\n  X=(--auto-resume=1)\nfi\n'
            'srun "${X[@]}" python3 train.py', "--open-mode=append"),
    ],
    "auto-resume-time": [
        job("srun --auto-resume=1 python3 train.py", "--open-mode=append", "--time=1-00:00:00"),
        job(RUN, "--time=30"),
    ],
    "example-partition": [readme("```bash\nsbatch --nodes=4 job.sbatch\n```\n", RUN)],
    "precedence-claim": [
        job(f"# The command line takes precedence over #SBATCH directives.\n{RUN}"),
        {"README.md": "Options on the command line override the #SBATCH directives.\n"},
        {"README.md": "#SBATCH directives do not override the command line.\n"},
    ],
    "host-address": [
        job(f'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n{RUN}'),
        job(f"export MASTER_ADDR=$(hostname -I | awk '{{print $1}}')\n{RUN}"),
        job(f'echo "on $(hostname -i)"\n{RUN}'),
    ],
    "random-port": [
        job(f"export MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))\n{RUN}"),
        {"local.sh": "#!/bin/bash\nMASTER_PORT=$RANDOM\ntorchrun --master_port $MASTER_PORT train.py\n"},
    ],
    "random-per-node": [job("ID=$RANDOM\nsrun bash -c \"torchrun --rdzv_id=$ID train.py\"")],
    "outside-mounts": [
        job("srun --container-image a.sqsh --container-mounts /fsx python3 pretrain_gpt.py --data-path /fsx/text_document"),
        job('srun --container-image a.sqsh --container-mounts "/fsx,$PWD" python3 x.py --deepspeed_config "$PWD/ds.json"'),
    ],
    "shared-file": [
        job("cat > ds_config_$SLURM_JOB_ID.json <<EOF\n{}\nEOF\nsrun python3 train.py --deepspeed ds_config_$SLURM_JOB_ID.json"),
        job('CONF="$(mktemp)"\necho > "$CONF"\ntrap \'rm "$CONF"\' EXIT\nsrun python3 train.py --config "$CONF"'),
        job('cat > "$OUTPUT_DIR/config.json" <<EOF\n{}\nEOF\nsrun python3 train.py --config "$OUTPUT_DIR/config.json"'),
        {"local.sh": "#!/bin/bash\necho > ds.json\npython3 train.py ds.json\n"},
        job("cd /opt\necho > ds.json\nsrun python3 train.py --config ds.json"),
        job("srun python3 train.py 2>&1 | tee main_log.txt"),
    ],
    "unused-file": [
        job('H=/fsx/hosts_$SLURM_JOB_ID\nscontrol show hostnames > "$H"\ntrap \'rm -f "$H"\' EXIT\nsrun deepspeed --hostfile "$H" t.py'),
    ],
    "no-trap": [job(f'T=$(mktemp)\ntrap \'rm -f "$T"\' EXIT\n{RUN}')],
    "own-path": [
        job(f'cd "$SLURM_SUBMIT_DIR"\n{RUN}'),
        {"run.sh": '#!/bin/bash\ncd "$(dirname "$0")"\npython3 train.py\n'},
    ],
    "fixed-partition": [job(RUN, "--partition=<your partition>"), job(RUN)],
    "fixed-account": [job(RUN, "--account=YOUR_ACCOUNT")],
    "fixed-nodes": [job(RUN, "--nodes=4")],
    "personal-mail": [job(RUN, "--mail-user=you@example.com")],
    "personal-path": [job(f"cd /home/$USER/code\n{RUN}"), job(f"# cd /home/ada\n{RUN}"), job(f"export D=/fsx/data\n{RUN}")],
    "fixed-bucket": [job(f'aws s3 cp out "s3://$BUCKET/x"\n{RUN}'), job(f"aws s3 ls s3://your-bucket/x\n{RUN}")],
    "fixed-aws-account": [
        job(f"docker pull 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:1\n{RUN}"),
        job(f'docker pull "$ACCOUNT.dkr.ecr.us-east-1.amazonaws.com/img:1"\n{RUN}'),
    ],
    "secret": [job(f'export HF_TOKEN="$HF_TOKEN"\n{RUN}'), job(f"export HF_TOKEN=hf_xxx\n{RUN}")],
    "exit-code-lost": [
        job("srun python3 train.py 2>&1 | tee log.txt"),
        job("srun python3 train.py", head=":"),
        job("srun python3 train.py\ncode=$?\necho \"end\"\nexit $code", head=":"),
    ],
    "no-errexit": [job(f"cd work\n{RUN}"), job(f"cd work || exit 1\n{RUN}", head=":"), job(RUN, head=":")],
    "unquoted": [job(f'cd "$DIR"\n{RUN}'), job(f'D=/opt/x\ncd $D\n{RUN}'), job(f'cp a $SLURM_JOB_ID.txt\n{RUN}')],
    "shebang": [{"job.sbatch": batch(RUN)}, {"part.sh": "A=1\n"}],
    "syntax": [{"job.sbatch": batch(RUN)}, {"run.sh": "#!/bin/bash\ncat < input.txt > out.txt\n[[ a < b ]] && echo y\n"}],
    "sweep-confounded": [sweep(ROWS), sweep(ROWS + "gbs 2 0 1 128\n")],
    "sweep-unnamed": [sweep(ROWS)],
}  # fmt: skip
