"""Ship a model as a seed and a mask, and rebuild it bit for bit."""

import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import untrained as ut

config = GPT2Config(vocab_size=256, n_positions=32, n_layer=2, n_embd=64, n_head=2)
applied = ut.apply(GPT2LMHeadModel(config), "supermask", seed=7)

path = Path(tempfile.mkdtemp()) / "model.ticket"
ticket = ut.Ticket.of(applied)
ticket.save(path)
print(ticket.size())

plain = ut.Ticket.load(path).model()
ids = torch.arange(32)[None]
with torch.inference_mode():
    assert torch.equal(plain(input_ids=ids).logits, applied.model.eval()(input_ids=ids).logits)
