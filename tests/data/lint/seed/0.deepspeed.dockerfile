FROM nvcr.io/nvidia/pytorch:25.04-py3

ARG TRANSFORMERS_VERSION=4.52.0
ENV EFA_INSTALLER_VERSION=1.47.0
ENV NCCL_VERSION=2.29.3-1

RUN apt-get update && apt-get install -y --no-install-recommends curl git \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /tmp
RUN curl -sL https://efa-installer.amazonaws.com/aws-efa-installer-${EFA_INSTALLER_VERSION}.tar.gz | tar xz \
    && cd aws-efa-installer \
    && ./efa_installer.sh -y -g -d --skip-kmod --skip-limit-conf --no-verify

RUN echo /opt/amazon/ofi-nccl/lib > /etc/ld.so.conf.d/aws-ofi-nccl.conf && ldconfig

RUN pip install --no-cache-dir \
    transformers==${TRANSFORMERS_VERSION} \
    "accelerate>=1.0,<2.0" \
    "deepspeed>=0.16,<1.0" \
    sentencepiece==0.2.0

ENV FI_PROVIDER=efa
