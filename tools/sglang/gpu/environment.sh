# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
#
# Sourced, with SGLANG_BUNDLE set to the folder that unpack.sh made: the environment in which its SGLang runs on a GPU,
# and its arguments (the array sglang_gpu_arguments). `refit agent --engine sglang` hands its environment on.
export PYTHONPATH=${SGLANG_BUNDLE:?the folder that unpack.sh made}/site TVM_FFI_CACHE_DIR=$SGLANG_BUNDLE/jit
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
nvcc=$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
export CUDA_HOME=${CUDA_HOME:-${nvcc%/bin/nvcc}}
export TORCHDYNAMO_DISABLE=${TORCHDYNAMO_DISABLE:-1}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1  # no NVLink multicast: several tenants may share the host
export SGLANG_IS_FLASHINFER_AVAILABLE=false  # of flashinfer the bundle has only what is imported by name

# Kernels that the bundle has, a model without tokenizer, small tables.
sglang_gpu_arguments=(
  --dtype bfloat16 --attention-backend triton --sampling-backend pytorch --grammar-backend none --skip-tokenizer-init
  --disable-cuda-graph --disable-custom-all-reduce --disable-flashinfer-autotune --max-running-requests 8
  --max-total-tokens 16384 --context-length 4096 --mem-fraction-static 0.3 --skip-server-warmup
)
