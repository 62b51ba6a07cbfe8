# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Sourced, with TP set: the environment in which an unmodified SGLang runs on the CPU, and its arguments (the array
# sglang_cpu_arguments). `refit agent --engine sglang` hands its environment on.
here_sglang=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export SGLANG_USE_CPU_ENGINE=1 CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
export PYTHONPATH=$here_sglang/cpu_shim
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} TOKENIZERS_PARALLELISM=false
if [ "${TP:-1}" -gt 1 ]; then  # one core for each rank; on one NUMA node the server's own choice fails an assertion
  export SGLANG_CPU_OMP_THREADS_BIND=${SGLANG_CPU_OMP_THREADS_BIND:-$(seq -s '|' 0 $((TP - 1)))}
fi
export SGLANG_NCCL_SO_PATH=/nonexistent/libnccl.so.2  # without a GPU: the NCCL communicator switches itself off
export TORCHDYNAMO_DISABLE=1  # one function is compiled otherwise, which costs minutes at the first request of TP > 1

# A model without tokenizer; small tables; --sleep-on-idle, since idle schedulers spin.
sglang_cpu_arguments=(
  --device cpu --dtype bfloat16 --attention-backend torch_native --sampling-backend pytorch --grammar-backend none
  --skip-tokenizer-init --disable-cuda-graph --disable-overlap-schedule --max-running-requests 8
  --max-total-tokens 4096 --context-length 1024 --mem-fraction-static 0.3 --skip-server-warmup --sleep-on-idle
)
