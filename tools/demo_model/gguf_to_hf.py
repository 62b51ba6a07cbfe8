#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a Llama model in GGUF into a Hugging Face checkpoint: BF16 safetensors, config.json, tokenizer.json.

The demo's model arrives quantised; its dequantised values are what we publish. Needs the packages gguf and numpy.
Made for SmolLM2-Instruct: the token ids and the pre-tokenizer below are that family's.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np

LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
MODEL_PARTS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
BOS_TOKEN = 1  # <|im_start|>
EOS_TOKEN = 2  # <|im_end|>
GGUF_CONTROL_TOKEN = 3


def hugging_face_name(name):
    if name in MODEL_PARTS:
        return MODEL_PARTS[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER_PARTS[part]}.weight"


def undo_rope_interleaving(matrix, head_count):
    """llama.cpp interleaves the rows of q and k for its rotary embedding; Hugging Face wants the two halves."""
    half = matrix.shape[0] // head_count // 2
    return matrix.reshape(head_count, half, 2, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


def to_bfloat16(values):
    """Rounds to nearest even. Bit patterns in uint16, because numpy has no bfloat16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read_tensors(reader, head_count, kv_head_count):
    tensors = {}
    for tensor in reader.tensors:
        shape = tuple(reversed(tensor.shape.tolist()))
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if ".attn_q." in tensor.name:
            values = undo_rope_interleaving(values, head_count)
        elif ".attn_k." in tensor.name:
            values = undo_rope_interleaving(values, kv_head_count)
        tensors[hugging_face_name(tensor.name)] = to_bfloat16(values)
    return dict(sorted(tensors.items()))


def write_safetensors(path, tensors):
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors.items():
        end = offset + values.nbytes
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for values in tensors.values():
            file.write(values.tobytes())


def write_weights(folder, tensors, shard_count):
    if shard_count == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return
    total = sum(values.nbytes for values in tensors.values())
    shards = [{} for _ in range(shard_count)]
    written = 0
    for name, values in tensors.items():
        shards[min(shard_count * written // total, shard_count - 1)][name] = values
        written += values.nbytes
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{shard_count:05d}.safetensors"
        write_safetensors(folder / file_name, shard)
        weight_map.update({name: file_name for name in shard})
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(path, value, indent=1):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def model_config(field, tied):
    head_count = field("llama.attention.head_count")
    hidden_size = field("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": head_count,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": hidden_size // head_count,
        "hidden_act": "silu",
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": 1e-05,
        "rope_theta": float(field("llama.rope.freq_base")),
        "rope_scaling": None,
        "vocab_size": field("llama.vocab_size"),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": BOS_TOKEN,
        "eos_token_id": EOS_TOKEN,
        "pad_token_id": EOS_TOKEN,
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.041666666666666664,
        "use_cache": True,
    }


def tokenizer(field):
    tokens = field("tokenizer.ggml.tokens")
    types = field("tokenizer.ggml.token_type")
    added = [
        {"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for index, token in enumerate(tokens) if types[index] == GGUF_CONTROL_TOKEN
    ]
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "add_prefix_space": False},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field("tokenizer.ggml.merges")],
        },
    }


def tokenizer_config(field):
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "model_max_length": 8192,
        "clean_up_tokenization_spaces": False,
        "chat_template": field("tokenizer.chat_template"),
    }


def convert(source, folder, shard_count):
    reader = gguf.GGUFReader(source)

    def field(key):
        return reader.fields[key].contents()

    tensors = read_tensors(reader, field("llama.attention.head_count"), field("llama.attention.head_count_kv"))
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, tensors, shard_count)
    write_json(folder / "config.json", model_config(field, tied="lm_head.weight" not in tensors))
    write_json(folder / "generation_config.json",
               {"bos_token_id": BOS_TOKEN, "eos_token_id": EOS_TOKEN, "pad_token_id": EOS_TOKEN})
    write_json(folder / "tokenizer.json", tokenizer(field), indent=None)
    write_json(folder / "tokenizer_config.json", tokenizer_config(field))
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="the .gguf file")
    parser.add_argument("folder", type=pathlib.Path, help="the checkpoint folder to write")
    parser.add_argument("--shards", type=int, default=2, help="safetensors files to write (default: 2)")
    arguments = parser.parse_args()
    tensors = convert(arguments.source, arguments.folder, arguments.shards)
    size = sum(values.nbytes for values in tensors.values())
    print(f"{len(tensors)} tensors, {size} bytes, {arguments.shards} files of weights")


if __name__ == "__main__":
    main()
