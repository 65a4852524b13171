"""For each rule about other files: some that have the fault, and near ones that have not."""

# ruff: noqa: E501  scripts stand here as they are
from __future__ import annotations

import json
from typing import Any

from tests.lint.support import Files, batch

NGC = "FROM nvcr.io/nvidia/pytorch:25.04-py3\n"
RUN = "srun python3 train.py\n"
TRAIN = batch(
    "srun python3 pretrain_gpt.py --deepspeed --deepspeed_config ds.json --tensor-model-parallel-size 2 "
    "--data-path /fsx/books_text_document --save x"
)


def docker(text: str) -> dict[str, str]:
    return {"Dockerfile": text}


def ds(data: Any, **more: str) -> Files:
    return {"ds.json": json.dumps(data, indent=2) + "\n", **more}


def flops(line: str, more: str = "") -> Files:
    return {"parse.py": f"# training log to TFLOPS\ndef rate(B, s, h, L, V, t, gpus):\n    {line}\n{more}"}


PARSER = """import argparse, json, re
STEP = re.compile(r"iteration +([0-9]+)")
LOSS = re.compile(r"lm loss: ([0-9.E+-]+)")
{extra}
def result(path{defaults}):
    return {{"tp": tp, "pp": pp, "zero_stage": zero_stage}}
parser = argparse.ArgumentParser()
parser.add_argument("--log-file")
{options}
json.dump({{}}, open("x.json", "w"))
"""
COUNTERS = 'NAN = re.compile(r"number of nan iterations: +([0-9]+)")'
LAYOUT = ", tp=8, pp=2, zero_stage=1"
OPTIONS = 'for o in ("--tp", "--pp", "--zero-stage"): parser.add_argument(o, type=int, required=True)'
NAMED = 'import os\ndef log(name, job):\n    return f"sweep_{name}_{job}.out"\nTFLOPS = 1\n'

BAD: dict[str, list[Files]] = {
    "acs-prefetch": [
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e8}},
           **{"job.sh": "#!/bin/bash\ndocker run egslingjun/training-nv-pytorch:25.08 x\n"}),
    ],
    "clone-unpinned": [
        docker("FROM ubuntu:24.04\nRUN git clone https://github.com/a/b.git && cd b && make\n"),
        {"setup.sh": "#!/bin/bash\ngit clone --depth 1 https://github.com/a/b\n"},
        {"README.md": "```bash\ngit clone https://github.com/a/b\n```\n"},
    ],
    "image-unpinned": [docker("FROM ubuntu\n"), docker("FROM nvcr.io/nvidia/pytorch:latest\n"),
                       {"get.sh": "#!/bin/bash\ndocker pull nvidia/cuda:latest\n"}],
    "packages-unpinned": [docker(f"{NGC}RUN pip install einops\n"), {"requirements.txt": "transformers>=4\n"}],
    "torch-replaced": [
        docker(f"{NGC}RUN pip install torch==2.6.0\n"),
        docker(f"{NGC}COPY requirements.txt .\nRUN pip install -r requirements.txt\n") | {"requirements.txt": "torch==2.6.0\n"},
        docker("FROM egslingjun/training-nv-pytorch:25.08\nRUN pip install deepspeed==0.16.9\n"),
    ],
    "deepspeed-range": [
        docker(f"{NGC}RUN pip install 'deepspeed>=0.16,<1.0'\n"), {"requirements.txt": "deepspeed\n"},
        {"requirements.txt": "deepspeed>=0.17,<0.19\n"},
    ],
    "known-bad-version": [
        docker(f"{NGC}ENV EFA_INSTALLER_VERSION=1.47.0\n"),
        docker(f"{NGC}ARG EFA_VERSION=1.48.0\n"),
        docker(f"{NGC}RUN curl https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz | tar xz\n"),
        docker(f"{NGC}ARG AWS_OFI_NCCL_VERSION=v1.18.0\n"),
        docker(f"{NGC}ENV NCCL_VERSION=2.28.9-1\nARG AWS_OFI_NCCL_VERSION=1.17.2\n"),
    ],
    "nccl-needs-cuda": [docker(f"{NGC}ENV NCCL_VERSION=2.29.3-1\nRUN apt-get install -y libnccl2=${{NCCL_VERSION}}+cuda12.8\n")],
    "version-drift": [
        docker(f"{NGC}RUN pip install transformers==4.52.0\n") | {"README.md": "The image has Transformers 4.44.2.\n"},
        {"a/Dockerfile": f"{NGC}ENV EFA_VERSION=1.49.0\n", "b/Dockerfile": f"{NGC}ENV EFA_VERSION=1.50.0\n"},
    ],
    "baked-devices": [docker(f"{NGC}ENV CUDA_VISIBLE_DEVICES=0,1\n")],
    "apt-upgrade": [docker(f"{NGC}RUN apt-get update && apt-get upgrade -y\n")],
    "docker-add": [docker(f"{NGC}ADD src /src\n"), docker(f"{NGC}ADD https://x.org/a.py /a.py\n")],
    "baked-ssh-key": [docker(f"{NGC}RUN ssh-keygen -q -t rsa -N '' -f /root/.ssh/id_rsa\n")],
    "host-keys-unchecked": [docker(f"{NGC}RUN echo 'StrictHostKeyChecking no' >> /etc/ssh/ssh_config\n")],
    "plugin-path": [docker(f"{NGC}RUN cd aws-efa-installer && ./efa_installer.sh -y\n")],
    "json-broken": [{"ds.json": '{"train_batch_size": 8,}\n'}],
    "ds-batch": [
        ds({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4}),
        ds({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 5}),
    ],
    "ds-precision": [ds({"train_batch_size": 8, "fp16": {"enabled": True}, "bf16": {"enabled": True}})],
    "ds-unknown-key": [
        ds({"train_batch_size": 8, "gradient_cliping": 1.0}),
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 1, "overlap_com": True}}),
    ],
    "ds-stage": [
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 4}}),
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}),
    ],
    "ds-accumulation": [
        ds({"train_batch_size": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}, **{"job.sbatch": TRAIN}),
    ],
    "tflops-formula": [
        flops("return 8 * B * s * h * h * L * (1 + s / (6 * h) + V / (12 * h * L)) / (t * gpus * 1e12)"),
        flops("return 24 * B * s * L * h**2 * (1 + s / (6 * h)) / t / gpus / 1e12"),
        flops("k = 9\n    work = k * B * s * L * pow(h, 2)\n    return work / (t * 1e9)"),
        flops("return {'tflops': round(8 * L * B * s * h ** 2 / (t * gpus) / 1e12, 1)}"),
        {"parse.py": "# training loss and TFLOPS\ndef rate(n_params, tokens, t):\n    return 2 * n_params * tokens / t / 1e12\n"},
        {"parse.py": "TFLOPS = 1\nclass A:\n    def f(self, a, dt):\n        return 600 * a.num_layers * a.hidden_size**2 * a.seq_length * a.batch_size / dt\n"},
    ],
    "shape-built-in": [
        {"parse.py": "def tflops(t, hidden_size=12288, num_layers=80):\n    flops = t\n    return flops\nprint(tflops(1))\n"},
    ],
    "layout-invented": [{"parse.py": PARSER.format(extra=COUNTERS, defaults=LAYOUT, options="print(result('x'))")}],
    "nan-steps-missed": [
        {"parse.py": PARSER.format(extra="", defaults="", options="")},
        {"parse.sh": "#!/bin/bash\ngrep 'lm loss' \"$1\" | awk '{print $3}'\n"},
    ],
    "log-name": [{"parse.py": NAMED, "job.sbatch": TRAIN}],
    "data-prefix": [
        {"README.md": "```bash\npython tools/preprocess_data.py --input a --output-prefix books_text_document\n```\n"},
        {"prep.sh": "#!/bin/bash\npython tools/preprocess_data.py --output-prefix /fsx/books\n",
         "job.sbatch": TRAIN.replace("/fsx/books_text_document", "/fsx/books")},
        {"prep.sh": "#!/bin/bash\npython tools/preprocess_data.py --output-prefix /fsx/other/books\n",
        "job.sbatch": TRAIN},
    ],
    "enroot-no-mount": [{"README.md": "```bash\nenroot start img.sqsh python3 /fsx/tool.py\n```\n"}],
    "code-fence": [{"README.md": "a\n\n```bash\nls\n"}, {"README.md": "a\n\n``\nls\n``\n"}],
    "missing-file": [
        {"README.md": "See [it](docs/none.md).\n"},
        {"README.md": "```bash\nsbatch none.sbatch\n```\n", "job.sbatch": TRAIN},
    ],
    "make-input": [{"Makefile": "parse:\n\tpython3 parse.py --jobs-csv results/jobs.csv\n"}],
    "make-blanks": [{"Makefile": "all:\n    echo hello\n"}],
    "crlf": [{"job.sbatch": batch(RUN).replace("\n", "\r\n")}, {"requirements.txt": "einops==0.8.0\r\n"}],
    "byte-order-mark": [{"run.sh": "\ufeff#!/bin/bash\nls\n"}],
    "broken-continuation": [{"run.sh": "#!/bin/bash\npython3 train.py \\  \n  --lr 1\n"}],
    "final-newline": [{"run.sh": "#!/bin/bash\nls"}, {"README.md": "a"}, {"Makefile": "a:\n\tls"}],
    "licence-header": [{
        **{f"{n}.sh": "#!/bin/bash\n# SPDX-License-Identifier: MIT-0\nls\n" for n in "abc"}, "d.sh": "#!/bin/bash\nls\n",
    }],
}  # fmt: skip

GOOD: dict[str, list[Files]] = {
    "acs-prefetch": [
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e8}}),
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto"}},
           **{"job.sh": "#!/bin/bash\ndocker run egslingjun/training-nv-pytorch:25.08 x\n"}),
    ],
    "clone-unpinned": [
        docker("FROM ubuntu:24.04\nRUN git clone --branch v1.2 https://github.com/a/b.git\n"),
        docker("FROM ubuntu:24.04\nRUN git clone https://github.com/a/b.git && cd b && git checkout 1a2b3c4\n"),
        docker("FROM ubuntu:24.04\n# RUN git clone https://github.com/a/b.git\n"),
        {"get.sh": "#!/bin/bash\ngit clone https://huggingface.co/gpt2\n"},
    ],
    "image-unpinned": [
        docker("FROM ubuntu:24.04 AS base\nFROM base\n"), docker("FROM a/b@sha256:abc\n"), docker("FROM scratch\n"),
        docker("ARG TAG=25.04-py3\nFROM nvcr.io/nvidia/pytorch:${TAG}\n"),
        {"get.sh": "#!/bin/bash\nenroot import -o a.sqsh dockerd://mine:latest\n"},
    ],
    "packages-unpinned": [docker(f"{NGC}RUN pip install einops==0.8.0\n"), {"requirements.txt": "transformers>=4,<5\n-r more.txt\n"}],
    "torch-replaced": [
        docker(f"{NGC}RUN pip install torchmetrics==1.0\n"),
        docker("FROM ubuntu:24.04\nRUN pip install torch==2.6.0\n"),
        docker(f"{NGC}RUN pip install deepspeed==0.16.9\n"),
    ],
    "deepspeed-range": [
        {"requirements.txt": "deepspeed==0.16.4\n"}, {"requirements.txt": "deepspeed>=0.16,<0.17\n"},
        {"requirements.txt": "deepspeed>=0.18.5,<0.19\n"},
    ],
    "known-bad-version": [
        docker(f"{NGC}ENV EFA_INSTALLER_VERSION=1.49.0\n"), docker(f"{NGC}ENV EFA_INSTALLER_VERSION=1.43.2\n"),
        docker(f"{NGC}# EFA_INSTALLER_VERSION=1.47.0 hangs\nENV EFA_INSTALLER_VERSION=1.49.0\n"),
        docker(f"{NGC}ENV NCCL_VERSION=2.27.7-1\nARG AWS_OFI_NCCL_VERSION=1.17.2\n"),
    ],
    "nccl-needs-cuda": [docker(f"{NGC}RUN apt-get install -y libnccl2=2.29.3-1+cuda12.9\n"),
                        docker(f"{NGC}RUN apt-get install -y libnccl2=2.27.7-1+cuda12.8\n")],
    "version-drift": [
        docker(f"{NGC}RUN pip install transformers==4.52.0\n") | {"README.md": "The image has Transformers 4.52.\n"},
        {"README.md": "The image has Transformers 4.44.2.\n"},
    ],
    "baked-devices": [docker(f"{NGC}ENV NVIDIA_VISIBLE_DEVICES=all\n")],
    "apt-upgrade": [docker(f"{NGC}RUN apt-get update && apt-get install -y git\n")],
    "docker-add": [docker(f"{NGC}COPY src /src\nADD src.tar.gz /src\n")],
    "baked-ssh-key": [docker(f"{NGC}RUN ssh-keygen -A\n")],
    "host-keys-unchecked": [docker(f"{NGC}RUN echo 'StrictHostKeyChecking yes' >> /etc/ssh/ssh_config\n")],
    "plugin-path": [docker(f"{NGC}RUN ./efa_installer.sh -y && echo /opt/amazon/ofi-nccl/lib > /etc/ld.so.conf.d/o.conf\n")],
    "json-broken": [ds({"train_batch_size": 8}), {"ds_TEMPLATE.json": '{"train_batch_size": GBSIZE}\n'},
                    {"ds.json": '{"train_batch_size": ${GBS}}\n'}],
    "ds-batch": [
        ds({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}),
        ds({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}),
    ],
    "ds-precision": [ds({"train_batch_size": 8, "fp16": {"enabled": False}, "bf16": {"enabled": True}})],
    "ds-unknown-key": [ds({"train_batch_size": 8, "gradient_clipping": 1.0, "my_own_note": 1})],
    "ds-stage": [
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}),
        ds({"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_param": {"device": "none"}}}),
    ],
    "ds-accumulation": [
        ds({"train_batch_size": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1},
            "data_types": {"grad_accum_dtype": "fp32"}}, **{"job.sbatch": TRAIN}),
        ds({"train_batch_size": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}, **{"job.sbatch": TRAIN}),
    ],
    "tflops-formula": [
        flops("return 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * h * L)) / (t * gpus * 1e12)"),
        flops("return 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * h * L)) / (t * gpus * 1e12)"),
        flops("forward = 24 * B * s * L * h**2 * (1 + s / (6 * h))\n    total = 3 * forward\n    return total / t"),
        flops("c = 4 * 24\n    return c * B * s * L * h * h / (t * gpus * 10**12)"),
        {"parse.py": "# training loss and TFLOPS\ndef rate(n_params, tokens, t):\n    return 6 * n_params * tokens / t / 1e12\n"},
        {"parse.py": "TFLOPS = 1\ndef memory(h, L, s):\n    return 34 * s * h * L\n"},
        {"parse.py": "TFLOPS = 1\ndef size(h, L, s, V):\n    return (V + s + 2) * h + L * (12 * h * h + 13 * h)\n"},
        {"serve.py": "# TFLOPS of serving\ndef rate(n_params, tokens, t):\n    return 2 * n_params * tokens / t\n"},
    ],
    "shape-built-in": [
        {"parse.py": "def tflops(t, hidden_size, num_layers):\n    flops = t\n    return flops\n"},
        {"parse.py": "def tflops(t, hidden_size=1, num_layers=2):\n    flops = t\n    return flops\n"
                     "print(tflops(1, hidden_size=h, num_layers=n))\n"},
    ],
    "layout-invented": [
        {"parse.py": PARSER.format(extra=COUNTERS, defaults=LAYOUT, options=OPTIONS.replace("o in", "o in"))
         .replace('for o in ("--tp", "--pp", "--zero-stage"): parser.add_argument(o, type=int, required=True)',
                  'parser.add_argument("--tp")\nparser.add_argument("--pp")\nparser.add_argument("--zero-stage")')},
        {"parse.py": PARSER.format(extra=COUNTERS, defaults=", tp, pp, zero_stage", options="")},
    ],
    "nan-steps-missed": [
        {"parse.py": PARSER.format(extra=COUNTERS, defaults="", options="")},
        {"plot.py": '# tflops\nnames = ["lm loss", "iteration time"]\n'},
    ],
    "log-name": [{"parse.py": NAMED, "job.sbatch": TRAIN.replace("--job-name=job", "--job-name=sweep_x")}],
    "data-prefix": [
        {"README.md": "```bash\npython tools/preprocess_data.py --output-prefix /fsx/books\n```\n",
        "job.sbatch": TRAIN},
        {"README.md": "```bash\npython tools/preprocess_data.py --output-prefix unrelated\n```\n", "job.sbatch": TRAIN},
    ],
    "enroot-no-mount": [{"README.md": "```bash\nenroot start --mount /fsx img.sqsh python3 /fsx/tool.py\n```\n"}],
    "code-fence": [{"README.md": "a\n\n```bash\nls\n```\n\n````\n```\n````\n"}],
    "missing-file": [
        {"README.md": "See [it](docs/a.md) and [that](https://x.org) and [up](../up).\n", "docs/a.md": "x\n"},
        {"README.md": "```bash\nsbatch job.sbatch\n```\n", "job.sbatch": TRAIN},
    ],
    "make-input": [
        {"Makefile": "parse:\n\tpython3 parse.py --jobs-csv results/jobs.csv\n",
         "sweep.sh": "#!/bin/bash\necho a >> results/jobs.csv\n"},
        {"Makefile": "parse:\n\tpython3 parse.py --jobs-csv $(CSV)\n"},
    ],
    "make-blanks": [{"Makefile": "X = 1\nall:\n\techo hello\n"}],
    "crlf": [{"job.sbatch": batch(RUN)}],
    "byte-order-mark": [{"run.sh": "#!/bin/bash\nls\n"}],
    "broken-continuation": [{"run.sh": "#!/bin/bash\npython3 train.py \\\n  --lr 1\n# a \\ \nls\n"}],
    "final-newline": [{"run.sh": "#!/bin/bash\nls\n"}, {"run.sh": ""}],
    "licence-header": [{f"{n}.sh": "#!/bin/bash\nls\n" for n in "abcd"}],
}  # fmt: skip
