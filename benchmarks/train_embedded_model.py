"""Train and export the embedded model: a ternary (b1.58) byte-level transformer.

    pip install torch==2.13.0 numpy gguf
    python benchmarks/train_embedded_model.py pytest_flamegate/child/embedded/model.gguf

The model memorises three things and nothing else: the one hundred single-digit
sums in two notations, and one passage of text. It exists to give the gate a real
decode with real kernels, not to be clever. Weights of every projection are
ternary (absmean scale, straight-through gradients) and activations are rounded
the way ggml's Q8_K rounds them, so that what is trained is what is run.

Every random draw comes from ``SEED``. Floating-point sums in a threaded BLAS may
still differ between machines, so a second training gives an equally good model
but not the same bytes; the shipped file is pinned by its sha256 in the tests.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SEED = 42
STEPS = 2400
DIM, LAYERS, HEADS, KV_HEADS, FFN = 512, 4, 8, 4, 1024
HEAD_DIM = DIM // HEADS
VOCAB, BOS, EOS = 258, 256, 257
CONTEXT = 512
ROPE_BASE, RMS_EPS = 10000.0, 1e-5
BLOCK = 256
PASSAGE = (
    "The gate stands open until the numbers speak. Each token has a time, each frame "
    "a share, and each claim a witness. When the clock runs slow, look where the flame "
    "is widest; when the flame holds still, trust the clock. A number without evidence "
    "is a rumour, and a rumour does not merge. Measure twice, say how sure you are, and "
    "only then let the change go through."
)


class TernaryWeight(torch.autograd.Function):
    """Round a matrix to {-s, 0, +s} with s = mean |w|; pass gradients straight through."""

    @staticmethod
    def forward(ctx, weight: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        scale = weight.abs().mean().clamp(min=1e-5)
        return (weight / scale).round().clamp(-1, 1) * scale

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return grad


class Q8KActivation(torch.autograd.Function):
    """Round activations to ggml's Q8_K grid: int8 with one scale for 256 values."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        blocks = x.reshape(-1, BLOCK)
        peak = blocks.abs().max(dim=1, keepdim=True).values.clamp(min=1e-12)
        return ((blocks * (127.0 / peak)).round() * (peak / 127.0)).reshape(x.shape)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return grad


class TernaryLinear(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in) / math.sqrt(n_in))

    def forward(self, quantised: Tensor) -> Tensor:
        return F.linear(quantised, TernaryWeight.apply(self.weight))


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + RMS_EPS) * self.weight


def rope_tables(length: int) -> tuple[Tensor, Tensor]:
    inverse = ROPE_BASE ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
    angles = torch.outer(torch.arange(length).float(), inverse)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """NEOX rotary embedding of (batch, heads, time, HEAD_DIM)."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kv = KV_HEADS * HEAD_DIM
        self.attn_norm, self.attn_sub_norm = RMSNorm(DIM), RMSNorm(DIM)
        self.ffn_norm, self.ffn_sub_norm = RMSNorm(DIM), RMSNorm(FFN)
        self.attn_q, self.attn_k = TernaryLinear(DIM, DIM), TernaryLinear(DIM, kv)
        self.attn_v, self.attn_output = TernaryLinear(DIM, kv), TernaryLinear(DIM, DIM)
        self.ffn_gate, self.ffn_up = TernaryLinear(DIM, FFN), TernaryLinear(DIM, FFN)
        self.ffn_down = TernaryLinear(FFN, DIM)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, time_, _ = x.shape
        h = Q8KActivation.apply(self.attn_norm(x))
        q = self.attn_q(h).view(batch, time_, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.attn_k(h).view(batch, time_, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.attn_v(h).view(batch, time_, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, time_, DIM)
        x = x + self.attn_output(Q8KActivation.apply(self.attn_sub_norm(mixed)))
        h = Q8KActivation.apply(self.ffn_norm(x))
        inner = F.silu(self.ffn_gate(h)) * self.ffn_up(h)
        return x + self.ffn_down(Q8KActivation.apply(self.ffn_sub_norm(inner)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token_embd = nn.Parameter(torch.randn(VOCAB, DIM) * 0.05)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = RMSNorm(DIM)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embd[tokens]
        cos, sin = rope_tables(tokens.shape[1])
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.output_norm(x), self.token_embd)


def sums() -> list[tuple[str, str]]:
    """All (prompt, answer) pairs of the one hundred single-digit sums, in both notations."""
    pairs = []
    for a in range(10):
        for b in range(10):
            pairs.append((f"{a}+{b}=", f"{a + b}"))
            pairs.append((f"What is {a}+{b}?", f" {a}+{b} is {a + b}."))
    return pairs


def row(prompt: str, answer: str) -> tuple[list[int], list[int]]:
    """Inputs and targets of one example; -100 for the prompt, which need not be predicted."""
    tokens = [BOS, *prompt.encode(), *answer.encode(), EOS]
    targets = tokens[1:]
    asked = len(prompt.encode())
    return tokens[:-1], [-100] * asked + targets[asked:]


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    width = max(len(inputs) for inputs, _ in rows)
    x = torch.full((len(rows), width), EOS)
    y = torch.full((len(rows), width), -100)
    for i, (inputs, targets) in enumerate(rows):
        x[i, : len(inputs)] = torch.tensor(inputs)
        y[i, : len(targets)] = torch.tensor(targets)
    return x, y


def train(steps: int) -> Model:
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model = Model()
    examples = [row(*pair) for pair in sums()]
    passage = padded([row(PASSAGE[:4], PASSAGE[4:])])
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    peak, warm = 1.5e-3, 100
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
        lr=peak,
        betas=(0.9, 0.98),
    )
    began = time.monotonic()
    for step in range(steps):
        rate = peak * min(1.0, (step + 1) / warm) * max(0.02, 1.0 - step / steps)
        for group in optimiser.param_groups:
            group["lr"] = rate
        if step % 3 == 0:
            x, y = passage
        else:
            x, y = padded([examples[i] for i in rng.choice(len(examples), 32, replace=False)])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 50 < 3 or step == steps - 1:
            print(
                f"step {step:5d}  loss {loss.item():.4f}  {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return model


@torch.no_grad()
def check(model: Model) -> None:
    """Fail unless every answer is exact; print the smallest gap between best and second token."""
    smallest = math.inf
    wrong = []
    for prompt, answer in [*sums(), (PASSAGE[:8], PASSAGE[8:])]:
        inputs, _ = row(prompt, answer)
        logits = model(torch.tensor([inputs]))[0, len(prompt.encode()) :]
        best = logits.topk(2, dim=-1)
        want = [*answer.encode(), EOS]
        if best.indices[:, 0].tolist() != want:
            wrong.append(prompt)
        smallest = min(smallest, float((best.values[:, 0] - best.values[:, 1]).min()))
    print(f"wrong answers: {len(wrong)} of {len(sums()) + 1}; smallest logit gap {smallest:.2f}")
    if wrong:
        raise SystemExit(f"not exported: the model gets these wrong: {wrong[:10]}")


def byte_names() -> list[str]:
    """The visible character that byte-level BPE writes for each byte (GPT-2's table)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    names, spare = [], 0
    for byte in range(256):
        names.append(chr(byte) if byte in printable else chr(256 + spare))
        spare += byte not in printable
    return names


def export(model: Model, path: Path) -> None:
    writer = gguf.GGUFWriter(str(path), "bitnet")
    writer.add_name("flamegate embedded ternary model")
    writer.add_license("Apache-2.0")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(DIM)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(RMS_EPS)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_TQ2_0)
    names = byte_names()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*names, "<bos>", "<eos>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2)
    # The format refuses an empty list of merges; this pair of control bytes never occurs in text.
    writer.add_token_merges([f"{names[0]} {names[1]}"])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(True)
    writer.add_tensor("token_embd.weight", model.token_embd.detach().numpy())
    writer.add_tensor("output_norm.weight", model.output_norm.weight.detach().numpy())
    for i, block in enumerate(model.blocks):
        for name, module in block.named_children():
            weight = module.weight.detach()
            if isinstance(module, RMSNorm):
                writer.add_tensor(f"blk.{i}.{name}.weight", weight.numpy())
                continue
            packed = gguf.quants.quantize(
                TernaryWeight.apply(weight).numpy(), gguf.GGMLQuantizationType.TQ2_0
            )
            writer.add_tensor(
                f"blk.{i}.{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.TQ2_0
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="where to write the GGUF file")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = train(options.steps)
    check(model)
    export(model, options.output)
    count = sum(p.numel() for p in model.parameters())
    print(
        f"{options.output}: {count / 1e6:.2f} M parameters, {options.output.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
